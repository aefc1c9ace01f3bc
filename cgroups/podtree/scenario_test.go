// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podtree_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/cgroupstest"
	"github.com/seed81659283/nodeagent/cgroups/podtree"
	"github.com/seed81659283/nodeagent/internal/script"
	"github.com/seed81659283/nodeagent/qos"
)

// TestScenarios runs the scripts in testdata/*.txtar, each section on its own tree and clock. A line that begins with ">" is the
// output of the line above, with the time since the start. testdata/README explains the commands.
func TestScenarios(t *testing.T) {
	script.Run(t, "testdata/*.txtar", func(t *testing.T, text string) (got string) {
		synctest.Test(t, func(t *testing.T) { got = play(t, text) })
		return got
	})
}

// scene is a running scenario.
type scene struct {
	t     *testing.T
	ctx   context.Context
	start time.Time
	opts  podtree.Options
	mode  cgroupstest.Mode
	fake  *cgroupstest.Tree // nil before the first command that uses it
	tree  *podtree.Tree
	pods  *podSet
	procs map[string]int // PIDs by name
	wg    sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	faults  map[string]string
	volumes map[string]bool
	lines   []line
}

// line is one line of output. Orphans are processed concurrently, so that lines of one instant are sorted.
type line struct {
	at   time.Duration
	kind int
	text string
}

const (
	aWrite = iota
	anOrphan
)

func play(t *testing.T, text string) string {
	ctx, cancel := context.WithCancel(t.Context())
	s := &scene{
		t: t, ctx: ctx, start: time.Now(), pods: pods(), opts: options(), procs: map[string]int{},
		faults: map[string]string{}, volumes: map[string]bool{},
	}
	s.opts.HasVolumes = func(uid string) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.volumes[uid]
	}
	s.opts.Hooks = podtree.Hooks{
		LimitsEnforced: func(p cgroups.Path, err error) { s.log(aWrite, "enforced %s: %v", p, cmp.Or(err, errors.New("ok"))) },
		OrphanProcessed: func(o podtree.Orphan) {
			if o.Err != nil {
				s.log(anOrphan, "orphan %s: %v, again in %v", o.Path, o.Err, time.Until(o.Retry))
			}
		},
		MemoryProtected: func(guaranteed, burstable int64) {
			s.log(aWrite, "protected guaranteed=%s burstable=%s", bytes(guaranteed), bytes(burstable))
		},
	}
	result := script.Lines(text, ">", func(out *strings.Builder, words []string) {
		s.command(words[0], words[1:])
		synctest.Wait()
		s.flush(out)
	})
	cancel()
	s.wg.Wait()
	return result
}

func (s *scene) log(kind int, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "; ")
	s.lines = append(s.lines, line{time.Since(s.start), kind, text})
}

func (s *scene) flush(out *strings.Builder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.SortStableFunc(s.lines, func(a, b line) int {
		if c := cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.kind, b.kind)); c != 0 || a.kind == aWrite {
			return c
		}
		return cmp.Compare(a.text, b.text)
	})
	for _, l := range s.lines {
		fmt.Fprintf(out, "> %v %s\n", l.at, l.text)
	}
	s.lines = nil
}

// command runs one command of a script.
func (s *scene) command(name string, args []string) {
	switch name {
	case "node":
		for _, arg := range args {
			s.setting(arg)
		}
	case "pod":
		s.addPod(args)
	case "ending", "gone":
		s.pods.change(func() {
			delete(s.pods.active, args[0])
			s.pods.others[args[0]] = name == "ending"
		})
	case "sources":
		s.pods.change(func() { s.pods.unknown = args[0] == "unknown" })
	case "mount", "unmount":
		s.mu.Lock()
		s.volumes[args[0]] = name == "mount"
		s.mu.Unlock()
	case "wait":
		d, err := time.ParseDuration(args[0])
		require.NoError(s.t, err)
		time.Sleep(d)
	case "fault", "heal":
		s.mu.Lock()
		s.faults[args[0]+" "+args[1]] = strings.Join(args[2:], " ")
		s.mu.Unlock()
	default:
		s.treeCommand(name, args)
	}
}

// treeCommand runs a command that needs the tree.
func (s *scene) treeCommand(name string, args []string) {
	s.open()
	var err error
	switch name {
	case "cgroup":
		err = s.fake.Apply(s.ctx, cgroups.Path(args[0]), cgroups.Resources{})
	case "process":
		s.procs[args[1]], err = s.fake.Start(cgroupstest.Proc{Cgroup: cgroups.Path(args[0]), Name: args[1], Memory: amount(args[2])})
	case "memory":
		err = s.fake.SetMemory(s.procs[args[0]], amount(args[1]))
	case "cache":
		err = s.fake.SetCache(cgroups.Path(args[0]), amount(args[1]))
	case "setup":
		err = s.tree.Setup(s.ctx)
	case "ready": // the first commands of most scenarios; each of them has its own scenario
		require.NoError(s.t, s.tree.Setup(s.ctx))
		s.treeCommand("run", nil)
		synctest.Wait()
		s.mu.Lock()
		s.lines = nil
		s.mu.Unlock()
	case "run":
		s.wg.Go(func() {
			if err := s.tree.Run(s.ctx); err != nil {
				s.log(aWrite, "run: %v", err)
			}
		})
	case "changed":
		s.tree.Changed()
	case "ensure":
		pod := s.pods.active[args[0]]
		s.wg.Go(func() { s.answer("ensure "+args[0], s.tree.Ensure(s.ctx, pod)) })
	case "limit":
		pod := s.pods.active[args[0]]
		s.wg.Go(func() { s.answer("limit "+args[0], s.tree.Limit(s.ctx, pod)) })
	case "remove":
		s.wg.Go(func() { s.answer("remove "+args[0], s.tree.Remove(s.ctx, args[0])) })
	case "show":
		s.show(cgroups.Path(args[0]))
	case "status":
		s.status()
	case "orphans":
		s.orphans()
	default:
		s.t.Fatalf("no command %q", name)
	}
	if err != nil {
		s.log(aWrite, "%s: %v", name, err)
	}
}

// answer logs err, or a success if the call took time.
func (s *scene) answer(what string, err error) {
	if err != nil {
		s.log(aWrite, "%s: %v", what, err)
	}
}

// open creates the tree of the node.
func (s *scene) open() {
	if s.fake != nil {
		return
	}
	s.fake = cgroupstest.New(cgroupstest.Options{
		Mode: s.mode, HugepageSizes: s.opts.Node.HugepageSizes,
		Killed: func(k cgroupstest.KilledProc) { s.log(aWrite, "killed %s in %s", k.Name, k.Cgroup) },
	})
	faults := &cgroupstest.Faults{Driver: s.fake}
	faults.ApplyFunc = func(ctx context.Context, next cgroupstest.Driver, p cgroups.Path, r cgroups.Resources) error {
		s.log(kindOf(p), "apply %s", strings.TrimSpace(string(p)+" "+text(r)))
		if err := s.fault(ctx, "apply", p); err != nil {
			return err
		}
		return next.Apply(ctx, p, r)
	}
	faults.ChildrenFunc = func(ctx context.Context, next cgroupstest.Driver, p cgroups.Path) ([]string, error) {
		if err := s.fault(ctx, "list", p); err != nil {
			return nil, err
		}
		return next.Children(ctx, p)
	}
	faults.RemoveFunc = func(ctx context.Context, next cgroupstest.Driver, p cgroups.Path) error {
		if _, err := next.Children(ctx, p); err == nil {
			s.log(anOrphan, "remove %s", p)
		}
		if err := s.fault(ctx, "remove", p); err != nil {
			return err
		}
		return next.Remove(ctx, p)
	}
	var err error
	s.tree, err = podtree.New(faults, s.pods, s.opts)
	require.NoError(s.t, err)
}

// kindOf returns the sort order of lines about a cgroup.
func kindOf(p cgroups.Path) int {
	if _, ok := cgroups.PodUID("", p); ok {
		return anOrphan
	}
	return aWrite
}

// fault returns the injected error of a call, or hangs.
func (s *scene) fault(ctx context.Context, op string, p cgroups.Path) error {
	s.mu.Lock()
	text := s.faults[op+" "+string(p)]
	s.mu.Unlock()
	switch text {
	case "":
		return nil
	case "hangs":
		return cgroupstest.Hang(ctx)
	}
	return errors.New(text)
}

// show prints the limits of a cgroup.
func (s *scene) show(p cgroups.Path) {
	r, err := s.fake.Limits(s.ctx, p)
	if err != nil {
		s.log(aWrite, "%s is not there", p)
		return
	}
	s.log(aWrite, "%s %s", p, text(r))
}

func (s *scene) status() {
	st := s.tree.Status()
	s.log(aWrite, "ready %v", st.Ready)
	for _, c := range st.Cgroups {
		s.log(aWrite, "%s since %v: %v", c.Path, c.Since.Sub(s.start), cmp.Or(c.Err, errors.New("in force")))
	}
}

func (s *scene) orphans() {
	st := s.tree.Status()
	for _, o := range st.Orphans {
		s.log(aWrite, "%s volumes=%v failures=%d: %v", o.Path, o.Volumes, o.Failures, cmp.Or(o.Err, errors.New("none")))
	}
	if st.OrphanErr != nil {
		s.log(aWrite, "not looked for: %v", st.OrphanErr)
	} else if len(st.Orphans) == 0 {
		s.log(aWrite, "none")
	}
}

// addPod creates a pod from "NAME cpu=REQUEST/LIMIT memory=REQUEST/LIMIT hugepages-2Mi=N".
func (s *scene) addPod(args []string) {
	requests, limits := list(), list()
	for _, arg := range args[1:] {
		name, value, _ := strings.Cut(arg, "=")
		request, limit, _ := strings.Cut(value, "/")
		maps.Copy(requests, list(name, request))
		maps.Copy(limits, list(name, limit))
	}
	s.pods.change(func() { s.pods.active[args[0]] = newPod(args[0], requests, limits) })
}

// setting changes the options of the node.
func (s *scene) setting(arg string) {
	key, value, _ := strings.Cut(arg, "=")
	o := &s.opts
	switch key {
	case "quota-from-start":
		s.opts.QuotaFromStart = true
	case "no-quota":
		s.opts.Node.NoCPUQuota = true
	case "v1":
		s.mode, o.Node.CgroupV1 = cgroupstest.V1, true
	case "root":
		o.Root = cgroups.Path(value)
	case "cpu", "memory":
		o.Capacity[corev1.ResourceName(key)] = resource.MustParse(value)
	case "pids":
		o.MaxPIDs = amount(value)
	case "cpus":
		o.CPUs = value
	case "pod-pids":
		o.Node.PodPidsLimit = amount(value)
	case "hugepages":
		o.Node.HugepageSizes = strings.Split(value, ",")
	case "tiered":
		o.Node.Reservation = qos.TieredReservation
	case "qos-reserved":
		percent, err := podtree.ParseQOSReserved(map[string]string{"memory": value})
		require.NoError(s.t, err)
		o.QOSReserved = percent
	case "enforce":
		o.Enforce = []podtree.Enforcement{}
		for key := range strings.SplitSeq(value, ",") {
			o.Enforce = append(o.Enforce, podtree.Enforcement(key))
		}
	case "system", "kube":
		s.reserve(key, value)
	case "eviction":
		o.Reserved.MemoryAvailable = keepFree(s.t, value)
	case "parallel":
		n, err := strconv.Atoi(value)
		require.NoError(s.t, err)
		o.Parallel = n
	default:
		s.t.Fatalf("no setting %q", arg)
	}
}

// reserve parses "CGROUP:cpu:100m,memory:1Gi".
func (s *scene) reserve(key, value string) {
	cgroup, rest, _ := strings.Cut(value, ":")
	reserved := list()
	for pair := range strings.SplitSeq(rest, ",") {
		name, quantity, _ := strings.Cut(pair, ":")
		maps.Copy(reserved, list(name, quantity))
	}
	if key == "system" {
		s.opts.SystemCgroup, s.opts.Reserved.System = cgroups.Path(cgroup), reserved
	} else {
		s.opts.KubeCgroup, s.opts.Reserved.Kube = cgroups.Path(cgroup), reserved
	}
}

func amount(s string) int64 {
	if s == "" {
		return 0
	}
	q := resource.MustParse(s)
	return q.Value()
}
