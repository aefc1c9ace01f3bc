// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/driver"
	"github.com/seed81659283/nodeagent/cgroups/podtree"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/remote"
	"github.com/seed81659283/nodeagent/internal/lab"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/pleg"
	"github.com/seed81659283/nodeagent/qos"
)

// v2Node is a node with containerd, cgroup v2 and memory QoS. Its agent can be killed, and a restarted agent finds the
// runtime, the cgroups and the disk unchanged. Tests read the files of the pods' cgroups, and their statuses.
type v2Node struct {
	*lifecycle.Reconciler        // the current agent
	kill                  func() // kills the agent, and waits until its goroutines have returned

	t         *testing.T
	actionLog *actionLog
	runtime   *recordingRuntime
	cgroups   *recordingCgroups
	tree      podtree.Options
	logs      string
	podRoot   string
	pods      map[string]*corev1.Pod // desired pods, by name

	mu       sync.Mutex // guards the fields below
	statuses map[string]corev1.PodStatus
}

// actionLog records the actions on pods.
type actionLog struct {
	mu    sync.Mutex
	lines []string
	names map[string]string // "pod/container" by container ID
	syncs map[string]int    // number of syncs by pod UID
}

func (n *actionLog) add(what, name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines = append(n.lines, what+" "+name)
}

// takeActions returns the actions since the last call, sorted and without duplicates.
func (n *actionLog) takeActions() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	lines := n.lines
	n.lines = nil
	slices.Sort(lines)
	return slices.Compact(lines)
}

// resetSyncs resets the number of syncs.
func (n *actionLog) resetSyncs() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.syncs = map[string]int{}
}

// allSynced reports whether each of the pods was synced three times.
func (n *actionLog) allSynced(pods map[string]*corev1.Pod) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, pod := range pods {
		if n.syncs[string(pod.UID)] < 3 {
			return false
		}
	}
	return true
}

func (n *actionLog) name(id string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.names[id]
}

// recordingRuntime records calls to containerd that change containers.
type recordingRuntime struct {
	*remote.Client
	*actionLog
}

func (r *recordingRuntime) CreateContainer(
	ctx context.Context, sandbox string, c *cri.ContainerConfig, s *cri.SandboxConfig,
) (string, error) {
	id, err := r.Client.CreateContainer(ctx, sandbox, c, s)
	r.mu.Lock()
	r.names[id] = s.Pod.Name + "/" + c.Name
	r.mu.Unlock()
	r.add("create", r.name(id))
	return id, err
}

func (r *recordingRuntime) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	r.add("stop", r.name(id))
	return r.Client.StopContainer(ctx, id, grace)
}

func (r *recordingRuntime) UpdateContainer(ctx context.Context, id string, c *cri.Resources, a map[string]string) error {
	r.add("update", r.name(id))
	return r.Client.UpdateContainer(ctx, id, c, a)
}

// recordingCgroups records writes to the cgroups of pods, and fails them while broken is set.
type recordingCgroups struct {
	*driver.Driver
	*actionLog
	root   cgroups.Path
	broken error
}

func (c *recordingCgroups) Apply(ctx context.Context, p cgroups.Path, r cgroups.Resources) error {
	uid, ok := cgroups.PodUID(c.root, p)
	if !ok {
		return c.Driver.Apply(ctx, p, r)
	}
	c.add("write", uid)
	c.mu.Lock()
	broken := c.broken
	c.mu.Unlock()
	if broken != nil {
		return broken
	}
	return c.Driver.Apply(ctx, p, r)
}

// Children is called by each sync, to check whether the cgroup of the pod exists.
func (c *recordingCgroups) Children(ctx context.Context, p cgroups.Path) ([]string, error) {
	if uid, ok := cgroups.PodUID(c.root, p); ok {
		c.mu.Lock()
		c.syncs[uid]++
		c.mu.Unlock()
	}
	return c.Driver.Children(ctx, p)
}

func (c *recordingCgroups) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = err
}

// newV2Node returns a node whose agent does not run yet.
func newV2Node(t *testing.T) *v2Node {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root creates cgroups")
	}
	d, err := driver.Open(t.Context(), driver.Options{})
	if err != nil {
		t.Skipf("cgroups are not available: %v", err)
	}
	t.Cleanup(func() { assert.NoError(t, d.Close()) })
	if mode := d.Host().Mode; mode != driver.V2 {
		t.Skipf("needs cgroup v2, has %s", mode)
	}
	actions := &actionLog{names: map[string]string{}, syncs: map[string]int{}}
	n := &v2Node{
		t: t, actionLog: actions, logs: t.TempDir(), podRoot: t.TempDir(), pods: map[string]*corev1.Pod{},
		cgroups: &recordingCgroups{Driver: d, actionLog: actions, root: cgroups.Path(fmt.Sprintf("nodeagent-resize-%d", os.Getpid()))},
	}
	require.NoError(t, d.Apply(t.Context(), n.cgroups.root, cgroups.Resources{}))
	t.Cleanup(func() { assert.NoError(t, d.Remove(context.WithoutCancel(t.Context()), n.cgroups.root)) })
	client, err := remote.Dial(lab.StartPrivate(t).Endpoint(), remote.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	n.runtime = &recordingRuntime{client, actions}
	n.tree, err = podtree.HostOptions(os.DirFS("/proc"))
	require.NoError(t, err)
	n.tree.Root, n.tree.Node.NoSwapController = n.cgroups.root, !d.Host().HasController("swap")
	n.tree.Node.Reservation, n.tree.Node.ThrottlingFactor = qos.TieredReservation, new(0.9)
	return n
}

// startAgent starts an agent.
func (n *v2Node) startAgent() {
	n.statuses = map[string]corev1.PodStatus{}
	ctx, cancel := context.WithCancel(context.WithoutCancel(n.t.Context()))
	generator := pleg.New(n.runtime, pleg.Options{})
	tree, err := podtree.New(n.cgroups, n, n.tree)
	require.NoError(n.t, err)
	n.Reconciler = newReconciler(n.t, n.runtime, generator, n.options(tree))
	require.NoError(n.t, tree.Setup(ctx))
	n.applyPods()
	var wg sync.WaitGroup
	wg.Go(func() { _ = generator.Run(ctx) })
	wg.Go(func() { _ = tree.Run(ctx) })
	wg.Go(func() { _ = n.Run(ctx) })
	n.kill = sync.OnceFunc(func() { cancel(); wg.Wait() })
	n.t.Cleanup(n.kill)
}

// options returns the options of an agent on a node that admits resizes up to 700m of CPU.
func (n *v2Node) options(tree *podtree.Tree) lifecycle.Options {
	return lifecycle.Options{
		Cgroups: tree, Dirs: lifecycle.Dirs{Pods: n.podRoot}, Pacing: lifecycle.Pacing{Resync: 300 * time.Millisecond},
		AdmitResize: func(pod *corev1.Pod) error {
			if cpu := qos.CPURequest(pod); cpu > 700 {
				return fmt.Errorf("node has 700m of CPU, not %dm", cpu)
			}
			return nil
		},
		Spec: podspec.Options{
			LogRoot: n.logs, Node: &n.tree.Node,
			CgroupParent: func(pod *corev1.Pod) string {
				name, err := n.cgroups.Name(tree.Path(pod))
				assert.NoError(n.t, err)
				return name
			},
		},
		Hooks: lifecycle.Hooks{StatusChanged: func(pod *corev1.Pod, st *corev1.PodStatus) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.statuses[pod.Name] = *st
		}},
	}
}

// applyPods passes the desired pods to the agent.
func (n *v2Node) applyPods() {
	set := lifecycle.PodSet{Source: "test"}
	for _, name := range slices.Sorted(maps.Keys(n.pods)) {
		set.Pods = append(set.Pods, n.pods[name].DeepCopy())
	}
	require.NoError(n.t, n.Set(set))
}

// setPod sets a desired pod. podLevel are its pod-level resources, if any, in the format of requirements; containers are
// names with resources. The pod uses 8 MiB.
func (n *v2Node) setPod(name, podLevel string, containers ...string) {
	n.t.Helper()
	pod := podtest.Pod(name)
	pod.Spec.HostNetwork, pod.Spec.Containers = true, nil
	if podLevel != "" {
		pod.Spec.Resources = new(podtest.ParseRequirements(strings.Fields(podLevel)))
	}
	for _, words := range containers {
		f := strings.Fields(words)
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
			Name: f[0], Image: lab.BusyboxImage, Resources: podtest.ParseRequirements(f[1:]),
			Command: []string{"sh", "-c", "head -c 8388608 /dev/zero >/dev/shm/held; " + runUntilTerm},
		})
	}
	podapi.Default(pod)
	if before := n.pods[name]; before != nil {
		pod.Generation = before.Generation + 1
	}
	n.pods[name] = pod
}

// cgroupFiles returns the contents of the cgroup files of the pods and their containers, one line each. Default values of
// memory protection and throttling are omitted.
func (n *v2Node) cgroupFiles() string {
	var lines []string
	top := filepath.Join(n.cgroups.Host().Dirs["memory"], string(n.cgroups.root))
	require.NoError(n.t, filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && !d.IsDir() {
			return nil // the directory may be removed by now
		}
		name, ok := strings.CutPrefix(filepath.Base(path), "poduid-")
		if !ok {
			name = n.actionLog.name(filepath.Base(path))
		}
		if name != "" {
			lines = append(lines, name+" "+cgroupLimits(path))
		}
		return err
	}))
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// cgroupLimits returns the contents of the files of a cgroup, the limits of CPU and memory first.
func cgroupLimits(dir string) string {
	read := func(file string) string {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return err.Error()
		}
		word := strings.TrimSpace(string(text))
		if bytes, err := strconv.ParseInt(word, 10, 64); err == nil && strings.HasPrefix(file, "memory.") {
			word = resource.NewQuantity(bytes, resource.BinarySI).String()
		}
		return word
	}
	line := fmt.Sprintf("%s weight %s memory %s", read("cpu.max"), read("cpu.weight"), read("memory.max"))
	for _, f := range []struct{ name, none string }{{"min", "0"}, {"low", "0"}, {"high", "max"}} {
		if word := read("memory." + f.name); word != f.none {
			line += " " + f.name + " " + word
		}
	}
	return line
}

// statusLines returns the statuses of the pods and the resources of their first containers, one line each.
func (n *v2Node) statusLines() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(n.statuses)) {
		st := n.statuses[name]
		lines = append(lines, name+" "+podtest.Describe(st)+", "+resizeOf(st))
	}
	return strings.Join(lines, "\n")
}

// await waits until the lines equal want, except for white space.
func (n *v2Node) await(has func() string, want string) {
	n.t.Helper()
	var lines []string
	for line := range strings.Lines(strings.TrimSpace(want)) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	want = strings.Join(lines, "\n")
	for deadline := time.Now().Add(waitLimit); ; time.Sleep(20 * time.Millisecond) {
		got := has()
		if got == want || time.Now().After(deadline) {
			require.Equal(n.t, want, got)
			return
		}
	}
}

// awaitWords waits until the status lines contain all of these words.
func (n *v2Node) awaitWords(words ...string) {
	n.t.Helper()
	for deadline := time.Now().Add(waitLimit); ; time.Sleep(20 * time.Millisecond) {
		statusLines := n.statusLines()
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(statusLines, w) }) {
			return
		}
		require.True(n.t, time.Now().Before(deadline), "%q missing in the statuses:\n%s", words, statusLines)
	}
}

// awaitMemoryUse waits until a Burstable pod uses this amount of memory.
func (n *v2Node) awaitMemoryUse(uid string, bytes uint64) {
	n.t.Helper()
	p := cgroups.PodPath(n.cgroups.root, cgroups.Burstable, uid)
	for deadline := time.Now().Add(waitLimit); ; time.Sleep(20 * time.Millisecond) {
		s, err := n.cgroups.Stats(n.t.Context(), p)
		require.NoError(n.t, err)
		if s.Memory.Current >= bytes {
			return
		}
		require.True(n.t, time.Now().Before(deadline), "uses %d bytes", s.Memory.Current)
	}
}

// requireActions requires exactly these actions since the last call.
func (n *v2Node) requireActions(want ...string) {
	n.t.Helper()
	require.Equal(n.t, want, n.actionLog.takeActions())
}

// awaitSyncs waits until the agent has synced each pod several more times.
func (n *v2Node) awaitSyncs() {
	n.t.Helper()
	n.actionLog.resetSyncs()
	for deadline := time.Now().Add(waitLimit); !n.actionLog.allSynced(n.pods); time.Sleep(20 * time.Millisecond) {
		require.True(n.t, time.Now().Before(deadline), "the agent does not sync its pods")
	}
}

// listContainers returns the containers with their states and creation times.
func (n *v2Node) listContainers() (lines []string) {
	snap, err := n.runtime.List(n.t.Context())
	require.NoError(n.t, err)
	for p := range snap.Pods() {
		for _, c := range p.Containers {
			lines = append(lines, fmt.Sprint(p.Name, "/", c.Name, " ", c.ID, " ", c.State, " ", c.CreatedAt))
		}
	}
	slices.Sort(lines)
	return lines
}
