// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/cgroupstest"
	"github.com/seed81659283/nodeagent/internal/script"
)

// TestScenarios runs the scripts in testdata/*.txtar, each section on its own tree. A line that begins with ">" is the output of
// the line above. testdata/README explains the commands.
func TestScenarios(t *testing.T) { script.Run(t, "testdata/*.txtar", play) }

// scene is a running scenario.
type scene struct {
	t    *testing.T
	tree *cgroupstest.Tree
	mode cgroupstest.Mode
	pids map[string]int
	out  *strings.Builder
}

// play returns the script with the output of each line.
func play(t *testing.T, text string) string {
	s := &scene{t: t, pids: map[string]int{}}
	s.make(nil)
	return script.Lines(text, ">", func(out *strings.Builder, words []string) {
		s.out = out
		if err := s.do(words[0], words[1:]); err != nil {
			s.say("%v", err)
		}
	})
}

func (s *scene) say(format string, args ...any) {
	fmt.Fprintln(s.out, strings.TrimSpace("> "+fmt.Sprintf(format, args...)))
}

// make creates the tree: "tree [v1] [memory=BYTES] [swap=BYTES] [hugepages=SIZE]".
func (s *scene) make(args []string) {
	o := cgroupstest.Options{Killed: s.killed}
	for _, arg := range args {
		switch key, value, _ := strings.Cut(arg, "="); key {
		case "v1":
			o.Mode = cgroupstest.V1
		case "linear":
			o.WeightFormula = cgroups.WeightLinear
		case "memory":
			o.Memory = s.bytes(value)
		case "swap":
			o.Swap = s.bytes(value)
		case "hugepages":
			o.HugepageSizes = append(o.HugepageSizes, value)
		}
	}
	s.mode, s.tree = o.Mode, cgroupstest.New(o)
}

func (s *scene) killed(k cgroupstest.KilledProc) {
	text := fmt.Sprintf("%s dies in %s: %v", k.Name, k.Cgroup.Cgroupfs(), k.Cause)
	if k.Cause != cgroupstest.CauseKill {
		text += ", " + k.FullCgroup.Cgroupfs() + " is full"
	}
	s.say("%s", text)
}

func (s *scene) do(cmd string, args []string) error {
	ctx := s.t.Context()
	if cmd == "tree" {
		s.make(args)
		return nil
	}
	p := cgroups.Path(strings.TrimPrefix(args[0], "/"))
	switch cmd {
	case "apply":
		return s.tree.Apply(ctx, p, s.resources(args[1:]))
	case "remove":
		return s.tree.Remove(ctx, p)
	case "kill":
		return s.tree.Kill(ctx, p)
	case "freeze":
		return s.tree.Freeze(ctx, p)
	case "thaw":
		return s.tree.Thaw(ctx, p)
	case "children":
		names, err := s.tree.Children(ctx, p)
		s.say("%s", strings.Join(names, " "))
		return err
	case "limits":
		return s.limits(p)
	case "stats":
		return s.stats(p)
	case "cache":
		return s.tree.SetCache(p, s.bytes(args[1]))
	case "active":
		return s.tree.SetActiveCache(p, s.bytes(args[1]))
	case "reclaim":
		freed, err := s.tree.Reclaim(ctx, p, uint64(s.bytes(args[1])))
		s.say("freed %s", mebi(freed))
		return err
	case "cpu":
		d, err := time.ParseDuration(args[1])
		require.NoError(s.t, err)
		return s.tree.AddCPU(p, cgroups.CPUStat{Usage: uint64(d), Periods: 10, Throttled: 3})
	case "read":
		return s.tree.AddIO(p, cgroups.IODevice{Major: 8, ReadBytes: uint64(s.bytes(args[1])), Reads: 1})
	case "hugetlb":
		return s.tree.SetHugetlb(p, args[1], s.bytes(args[2]))
	case "pressure":
		percent, err := strconv.ParseFloat(args[2], 64)
		require.NoError(s.t, err)
		return s.tree.SetPressure(p, args[1], cgroups.Pressure{Some: cgroups.PressureLine{Avg10: percent}})
	}
	return s.process(cmd, args)
}

// process runs a command that changes or shows a process.
func (s *scene) process(cmd string, args []string) (err error) {
	name := args[0]
	switch cmd {
	case "start":
		proc := cgroupstest.Proc{Name: name, Cgroup: cgroups.Path(strings.TrimPrefix(args[1], "/"))}
		for _, arg := range args[2:] {
			switch key, value, _ := strings.Cut(arg, "="); key {
			case "memory":
				proc.Memory = s.bytes(value)
			case "adj":
				proc.OOMScoreAdj = int(s.bytes(value))
			}
		}
		s.pids[name], err = s.tree.Start(proc)
	case "memory":
		err = s.tree.SetMemory(s.pids[name], s.bytes(args[1]))
	case "adj":
		err = s.tree.SetOOMScoreAdj(s.pids[name], int(s.bytes(args[1])))
	case "exit":
		err = s.tree.Exit(s.pids[name])
	case "proc":
		if p, ok := s.tree.Proc(s.pids[name]); ok {
			swapped := ""
			if p.Swapped > 0 {
				swapped = " and " + mebi(p.Swapped) + " in swap"
			}
			s.say("%s has %s%s in %s", name, mebi(p.Memory), swapped, p.Cgroup.Cgroupfs())
		} else {
			s.say("%s is gone", name)
		}
	default:
		s.t.Fatalf("unknown command %s", cmd)
	}
	return err
}

// bytes parses a number with a unit: 64Mi, max.
func (s *scene) bytes(text string) int64 {
	if text == "max" {
		return cgroups.Unlimited
	}
	number, unit := strings.TrimRight(text, "KMGi"), int64(1)
	if i := strings.Index("KMG", strings.TrimSuffix(text[len(number):], "i")); i >= 0 && number != text {
		unit = 1 << (10 * (i + 1))
	}
	n, err := strconv.ParseInt(number, 10, 64)
	require.NoError(s.t, err)
	return n * unit
}

// mebi formats a number of bytes.
func mebi[T int64 | uint64](n T) string {
	if n > 0 && int64(n)%(1<<20) == 0 {
		return fmt.Sprintf("%dMi", n>>20)
	}
	return fmt.Sprint(n)
}

// resources parses "memory=64Mi pids=10 memory.high=max". Names of v2 files go to Unified.
func (s *scene) resources(args []string) (r cgroups.Resources) {
	limits := map[string]**int64{
		"memory": &r.MemoryMax, "min": &r.MemoryMin, "low": &r.MemoryLow, "high": &r.MemoryHigh,
		"swap": &r.SwapMax, "pids": &r.PidsMax,
	}
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		switch {
		case limits[key] != nil:
			n := s.bytes(value)
			*limits[key] = &n
		case key == "shares":
			r.CPUShares = uint64(s.bytes(value))
		case key == "quota":
			r.CPUQuota = s.bytes(value)
		case key == "period":
			r.CPUPeriod = uint64(s.bytes(value))
		case key == "cpus":
			r.CpusetCPUs = value
		case key == "oomgroup":
			group := value == "1"
			r.OOMGroup = &group
		case strings.Contains(key, "."):
			if r.Unified == nil {
				r.Unified = map[string]string{}
			}
			r.Unified[key] = value
		default:
			if r.Hugetlb == nil {
				r.Hugetlb = map[string]int64{}
			}
			r.Hugetlb[key] = s.bytes(value)
		}
	}
	return r
}

func (s *scene) limits(p cgroups.Path) error {
	r, err := s.tree.Limits(s.t.Context(), p)
	if err != nil {
		return err
	}
	text := []string{fmt.Sprintf("shares=%d quota=%d/%d", r.CPUShares, r.CPUQuota, r.CPUPeriod)}
	add := func(name string, n *int64) {
		if n != nil && *n != cgroups.Unlimited && (*n != 0 || name != "min" && name != "low") {
			text = append(text, name+"="+mebi(*n))
		}
	}
	add("memory", r.MemoryMax)
	add("min", r.MemoryMin)
	add("low", r.MemoryLow)
	add("high", r.MemoryHigh)
	add("swap", r.SwapMax)
	add("pids", r.PidsMax)
	if r.CpusetCPUs != "" {
		text = append(text, "cpus="+r.CpusetCPUs)
	}
	if r.OOMGroup != nil && *r.OOMGroup {
		text = append(text, "oomgroup")
	}
	for size, n := range r.Hugetlb {
		add(size, &n)
	}
	for file, value := range r.Unified {
		text = append(text, file+"="+value)
	}
	s.say("%s", strings.Join(text, " "))
	return nil
}

func (s *scene) stats(p cgroups.Path) error {
	st, err := s.tree.Stats(s.t.Context(), p)
	if err != nil {
		return err
	}
	var text []string
	add := func(name, value string) {
		if !slices.Contains([]string{"0", "0s", "false"}, value) {
			text = append(text, name+"="+value)
		}
	}
	add("memory", mebi(st.Memory.Current))
	add("peak", mebi(st.Memory.Peak))
	add("cache", mebi(st.Memory.Stat.File))
	add("active", mebi(st.Memory.Stat.ActiveFile))
	add("swap", mebi(st.Memory.Swap))
	e := st.Memory.Events
	for i, n := range []uint64{e.Low, e.High, e.Max, e.OOM, e.OOMKill, e.OOMGroupKill} {
		add([]string{"low", "high", "max", "oom", "oom_kill", "oom_group_kill"}[i], fmt.Sprint(n))
	}
	add("pids", fmt.Sprint(st.Pids.Current))
	add("refused", fmt.Sprint(st.Pids.Refused))
	add("cpu", time.Duration(st.CPU.Usage).String())
	add("throttled", fmt.Sprint(st.CPU.Throttled))
	for _, d := range st.IO.Devices {
		add(fmt.Sprintf("read %d:%d", d.Major, d.Minor), mebi(d.ReadBytes))
	}
	for size, h := range st.Hugetlb {
		add(size, mebi(h.Current))
		add(size+" refused", fmt.Sprint(h.Refused))
	}
	if s.mode == cgroupstest.V2 {
		add("pressure cpu", fmt.Sprint(st.CPU.Pressure.Some.Avg10))
		add("pressure memory", fmt.Sprint(st.Memory.Pressure.Some.Avg10))
		add("pressure io", fmt.Sprint(st.IO.Pressure.Some.Avg10))
	}
	add("frozen", fmt.Sprint(st.Events.Frozen))
	s.say("%s", strings.Join(text, " "))
	return nil
}
