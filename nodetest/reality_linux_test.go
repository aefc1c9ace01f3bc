// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/agent"
	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/driver"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/process"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
	"github.com/seed81659283/nodeagent/nodestatus"
	hardware "github.com/seed81659283/nodeagent/nodestatus/machine"
	"github.com/seed81659283/nodeagent/nodetest"
	"github.com/seed81659283/nodeagent/nodetest/machine"
	"github.com/seed81659283/nodeagent/stats"
)

// The simulated node agrees with an agent on a real kernel in at least so many of the generated scenarios.
const (
	realScenarios = 20
	realMustAgree = 18
	realDuration  = 40 * time.Second
	// realTolerance is how far the times of an eviction may differ: half of the interval between two observations of the kubelet. The processes of a
	// real node grow late while others use its only CPU.
	realTolerance = 5 * time.Second
	// startCPU is the CPU time in which User Mode Linux starts the program of a pod.
	startCPU = 1500 * time.Millisecond
)

// realNode is an agent with the embedded runtime on the cgroups of this kernel. Its pods are processes of the test program.
type realNode struct {
	cgroups   *driver.Driver
	memory    int64 // capacity
	available int64 // without pods
	base      int64 // memory of a process that uses nothing
	perPod    int64 // memory that a pod takes outside of its cgroup: that of the shim, and of the kernel
}

// openRealNode opens cgroup v2 of this kernel. The test is skipped where there is none, as outside of hack/vm.
func openRealNode(t *testing.T) *realNode {
	t.Helper()
	if os.Getuid() != 0 || os.Getenv("IN_TEST_VM") == "" {
		t.Skip("needs a kernel with cgroup v2 of its own, see hack/vm: make node-model")
	}
	n := &realNode{}
	var err error
	n.cgroups, err = driver.Open(t.Context(), driver.Options{})
	require.NoError(t, err)
	program, err := os.Open(os.Args[0]) // into the page cache of this process, and not of the first pod
	require.NoError(t, err)
	defer program.Close()
	_, err = io.Copy(io.Discard, program)
	require.NoError(t, err)
	n.measureMemory(t)
	n.calibrate(t)
	return n
}

// calibrate measures what idle pods take outside of their cgroups.
func (n *realNode) calibrate(t *testing.T) {
	t.Helper()
	const pods = 3
	s := &realScenario{threshold: 1 << 20}
	for i := range pods {
		s.pods = append(s.pods, nodetest.NewPod(fmt.Sprint("idle-", i), nodetest.Resources{Memory: "1Mi"}, "memory=0"))
	}
	idle := n.run(t, s)
	sizes := slices.Sorted(maps.Values(idle.workingSet))
	require.Len(t, sizes, pods)
	n.base = sizes[pods/2]
	n.perPod = max(0, (idle.before-idle.available)/pods-n.base)
}

// openRuntime opens the embedded runtime, which an agent closes at its end, and its measurements.
func (n *realNode) openRuntime(t *testing.T) (*process.Runtime, *stats.Collector) {
	t.Helper()
	dir := t.TempDir()
	r, err := process.Open(filepath.Join(dir, "processes"), process.Options{Cgroups: n.cgroups})
	require.NoError(t, err)
	c, err := stats.New(n.cgroups, r, stats.Options{NodeName: "node", Root: dir, LogRoot: dir})
	require.NoError(t, err)
	return r, c
}

// measureMemory measures the memory of the node without pods.
func (n *realNode) measureMemory(t *testing.T) {
	t.Helper()
	r, collector := n.openRuntime(t)
	defer r.Close()
	signals, err := collector.Signals(t.Context())
	require.NoError(t, err)
	n.memory, n.available = signals.Memory.Capacity, n.availableMemory(t, collector)
}

// availableMemory returns the signal memory.available. The memory that this process does not use is returned first.
func (n *realNode) availableMemory(t *testing.T, collector *stats.Collector) int64 {
	t.Helper()
	debug.FreeOSMemory()
	s, err := collector.Signals(t.Context())
	require.NoError(t, err)
	if s.MemAvailable != nil {
		return min(s.Memory.Available, s.MemAvailable.Available)
	}
	return s.Memory.Available
}

// evicted is an eviction of a pod, at a time since the start of the scenario.
type evicted struct {
	pod string
	at  time.Duration
}

// outcome is the result of a scenario.
type outcome struct {
	started           map[string]time.Duration // of a real node: when the processes of the pods began
	evicted           []evicted
	oom               []string
	before, available int64                      // bytes of memory available to a real node before its pods and at the end
	workingSet        map[string]int64           // of the pods of a real node that run at the end
	cpu               map[string]cgroups.CPUStat // of the pods that run at the end
}

// options returns the options of a node for a scenario, with this much available memory before its pods.
func (n *realNode) options(s *realScenario, available int64) nodetest.Options {
	o := nodetest.Options{Machine: machine.Spec{CPUs: runtime.NumCPU(), Memory: n.memory, Tick: 10 * time.Millisecond}}
	o.System.Memory = nodetest.Constant(float64(n.memory - available + int64(len(s.pods))*n.perPod))
	o.Config.Kubelet.EvictionHard = map[string]string{"memory.available": fmt.Sprint(s.threshold), "nodefs.available": "1%", "nodefs.inodesFree": "1%"}
	return o
}

// run runs the scenario as real processes.
func (n *realNode) run(t *testing.T, s *realScenario) (result outcome) {
	t.Helper()
	server := apiservertest.NewServer(apiservertest.Options{})
	defer server.Close()
	config := n.options(s, n.available).Config
	config.Node.NodeName, config.Node.ParallelStarts = "node", 100
	config.Kubelet.ClusterDNS = []string{"10.96.0.10"}
	r, collector := n.openRuntime(t)
	host := nodestatus.Fixed{Info: hardware.Info{MachineID: "m", SystemUUID: "m", BootID: "b", CPUs: runtime.NumCPU(), Memory: n.memory, RootFS: 10 << 30}}
	files := t.TempDir()
	var agentLog lockedBuffer
	var mu sync.Mutex
	began := time.Now()
	result.started = map[string]time.Duration{}
	o := agent.Options{
		Logger: slog.New(slog.NewTextHandler(&agentLog, nil)), Runtime: r, Machine: host, Hosts: host, Ephemeral: true, API: server.Config(), Cgroups: n.cgroups, Measurer: collector,
	}
	o.Hooks.Event = func(pod cri.PodIdentity, e podevents.Event, _ map[string]string) {
		mu.Lock()
		defer mu.Unlock()
		if e.Reason == "Evicted" {
			result.evicted = append(result.evicted, evicted{pod.Name, time.Since(began)})
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	a, err := agent.New(ctx, config, o)
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	time.Sleep(2 * time.Second)
	result.before = n.availableMemory(t, collector)
	began = time.Now()
	for _, pod := range s.pods {
		pod = pod.DeepCopy()
		pod.Spec.NodeName = "node"
		c := &pod.Spec.Containers[0]
		c.Command = []string{os.Args[0]}
		c.Env = []corev1.EnvVar{
			{Name: workerVariable, Value: pod.Annotations[nodetest.AnnotationUsage]}, {Name: beganVariable, Value: filepath.Join(files, pod.Name)},
		}
		require.NoError(t, server.Put(pod))
	}
	time.Sleep(time.Until(began.Add(realDuration)))
	result.available = n.availableMemory(t, collector)
	result.cpu, result.workingSet = map[string]cgroups.CPUStat{}, map[string]int64{}
	for _, pod := range s.pods {
		text, err := os.ReadFile(filepath.Join(files, pod.Name))
		require.NoError(t, err, "%s", &agentLog)
		nanoseconds, err := strconv.ParseInt(string(text), 10, 64)
		require.NoError(t, err)
		result.started[pod.Name] = time.Unix(0, nanoseconds).Sub(began)
		path := cgroups.PodPath("", s.class(pod), string(pod.UID))
		children, _ := n.cgroups.Children(ctx, path) // an evicted pod has none
		for _, c := range children {
			if st, err := n.cgroups.Stats(ctx, path.Join(c)); err == nil && st.Pids.Current > 0 {
				result.cpu[pod.Name] = st.CPU
				result.workingSet[pod.Name] = int64(st.Memory.Current - st.Memory.Stat.InactiveFile)
			}
		}
		result.oom = append(result.oom, oomKilled(server, pod.Name)...)
	}
	for _, pod := range s.pods {
		if p, ok := apiservertest.Get[*corev1.Pod](server, "default", pod.Name); ok {
			require.NoError(t, server.Delete(p, new(int64(1))))
		}
	}
	removed := func() bool { return len(apiservertest.List[*corev1.Pod](server)) == 0 }
	require.Eventually(t, removed, time.Minute, 100*time.Millisecond, "%s", &agentLog)
	cancel()
	require.NoError(t, <-ended)
	mu.Lock()
	defer mu.Unlock()
	return result
}

// oomKilled returns the name of a pod whose container the OOM killer has ended.
func oomKilled(server *apiservertest.Server, name string) []string {
	p, ok := apiservertest.Get[*corev1.Pod](server, "default", name)
	if !ok {
		return nil
	}
	for _, c := range p.Status.ContainerStatuses {
		for _, s := range []corev1.ContainerState{c.State, c.LastTerminationState} {
			if s.Terminated != nil && s.Terminated.Reason == "OOMKilled" {
				return []string{name}
			}
		}
	}
	return nil
}

// simulatedStart is how long a simulated pod takes to start. A real one takes longer while the kernel loads its program.
const simulatedStart = 400 * time.Millisecond

// simulate runs the scenario with a Loop, whose pods start when those of the real node have started. Each process has the memory of a real one that
// uses nothing, too.
func (n *realNode) simulate(t *testing.T, s *realScenario, real *outcome) (result outcome) {
	t.Helper()
	o := n.options(s, real.before)
	o.Behave = func(pod *corev1.Pod, _ string) (nodetest.Behavior, bool) {
		b, err := nodetest.ParseBehavior(pod.Annotations[nodetest.AnnotationUsage], 0)
		assert.NoError(t, err)
		b.Usage.Memory = nodetest.Sum(b.Usage.Memory, nodetest.Constant(float64(n.base)))
		return b, true
	}
	l, err := nodetest.NewLoop(t.Context(), o)
	require.NoError(t, err)
	for _, pod := range s.startOrder(real.started) {
		l.Advance(real.started[pod.Name] - simulatedStart - l.Age())
		require.NoError(t, l.Add(pod))
	}
	l.Advance(realDuration - l.Age())
	for _, e := range l.Log().Match("", nodetest.KindEvent, "Evicted") {
		result.evicted = append(result.evicted, evicted{strings.TrimPrefix(e.Pod, "default/"), e.At})
	}
	result.cpu = map[string]cgroups.CPUStat{}
	for _, pod := range s.pods {
		if st, err := l.Stats(pod.Name); err == nil && st.Pids.Current > 0 {
			result.cpu[pod.Name] = st.CPU
		}
		if len(l.Log().Match("default/"+pod.Name, nodetest.KindOOM, "")) > 0 {
			result.oom = append(result.oom, pod.Name)
		}
	}
	return result
}

// difference returns how two outcomes of a scenario differ, or "".
func difference(real, model *outcome) string {
	names := func(list []evicted) (pods []string) {
		for _, e := range list {
			pods = append(pods, e.pod)
		}
		return pods
	}
	switch {
	case !slices.Equal(names(real.evicted), names(model.evicted)):
		return "victims"
	case !slices.Equal(real.oom, model.oom):
		return "OOM kills"
	}
	for i := range real.evicted {
		if (real.evicted[i].at - model.evicted[i].at).Abs() > realTolerance {
			return "time of " + real.evicted[i].pod
		}
	}
	for pod, m := range model.cpu {
		r, runs := real.cpu[pod]
		if m.Usage > 0 && (!runs || !isNear(r.Usage, m.Usage)) {
			return "CPU time of " + pod
		}
	}
	return ""
}

// isNear reports whether two CPU times in nanoseconds differ by at most 10 %, or by startCPU.
func isNear(a, b uint64) bool {
	low, high := float64(min(a, b)), float64(max(a, b))
	return high-low <= max(0.1*high, float64(startCPU))
}

// show formats an outcome for the log.
func (o *outcome) show() string {
	var b strings.Builder
	for _, e := range o.evicted {
		fmt.Fprintf(&b, "%s evicted after %.1f s, ", e.pod, e.at.Seconds())
	}
	for _, pod := range o.oom {
		fmt.Fprintf(&b, "%s killed for memory, ", pod)
	}
	for _, pod := range slices.Sorted(mapKeys(o.cpu)) {
		if c := o.cpu[pod]; c.Usage > uint64(time.Second) {
			fmt.Fprintf(&b, "%s used %.1f s and was throttled for %.1f s, ", pod, time.Duration(c.Usage).Seconds(), time.Duration(c.ThrottledTime).Seconds())
		}
	}
	return strings.TrimSuffix(b.String(), ", ")
}

// The pods of generated scenarios have the same victims, in the same order and at the same times, and the same CPU time.
func TestIntegrationNodeAgreesWithAnAgentOnARealKernel(t *testing.T) {
	n := openRealNode(t)
	t.Logf("%d MiB of memory, %d MiB available, %d KiB for each process and %d KiB for its pod", n.memory>>20, n.available>>20, n.base>>10, n.perPod>>10)
	agreed := 0
	for seed := range uint64(scenarioCount(t)) {
		n.measureMemory(t)
		s := generateScenario(rand.New(rand.NewPCG(seed, 2)), n.available)
		real := n.run(t, s)
		model := n.simulate(t, s, &real)
		why := difference(&real, &model)
		if why == "" {
			agreed++
			why = "agrees"
		}
		t.Logf("scenario %d: %s\n%s\n  real:  %s\n  model: %s", seed, why, s, real.show(), model.show())
	}
	t.Logf("%d of %d scenarios agree", agreed, realScenarios)
	assert.GreaterOrEqual(t, agreed*realScenarios, realMustAgree*scenarioCount(t))
}

// scenarioCount returns the number of scenarios: that in the environment, or else realScenarios.
func scenarioCount(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(os.Getenv("NODETEST_SCENARIOS"))
	if err != nil {
		return realScenarios
	}
	return n
}

// lockedBuffer is a buffer that any goroutine may write.
type lockedBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write appends a line.
func (b *lockedBuffer) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(line)
}

// String returns the text.
func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
