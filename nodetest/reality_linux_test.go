// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/agent"
	"github.com/seed81659283/nodeagent/cgroups"
	hardware "github.com/seed81659283/nodeagent/nodestatus/machine"
	"github.com/seed81659283/nodeagent/nodetest"
	"github.com/seed81659283/nodeagent/nodetest/machine"
	"github.com/seed81659283/nodeagent/qos"
)

const (
	scenarios       = 20
	mustAgree       = 18
	scenarioSeconds = 40
	tick            = 10 * time.Millisecond // of User Mode Linux
	// disturbedAfter is a delay of a timer after which a scenario is repeated once: the VM had no CPU of the host.
	disturbedAfter = 2 * time.Second
	// closeMemory is the noise of available memory. A scenario that differs is shown with this much more and less: it may be a close decision.
	closeMemory = 6 << 20 // bytes
)

// overhead is the memory of real processes that a simulated node does not have.
type overhead struct {
	worker int64 // bytes of a worker before it grows, in the cgroup of its pod
	shim   int64 // bytes of the shim of a container, outside of the pods
}

// The same pods run under package agent on this kernel, as real processes, and in a simulated node with the available memory, the start times of the
// workers, the CPU time of the system and the options of the real one. Both agree on the pods that are evicted, their order and times, on OOM kills,
// and on CPU time and throttled time of pods with a limit.
//
// The simulated processes have, in addition, the memory of a real worker; that of the shims and of the agent is Options.System.
//
// The run of 27 November 2026 on User Mode Linux 6.1 with one CPU and 1 GiB, on a host with two busy CPUs (load average 7 to 12), failed: 16 of 20
// scenarios agree in all aspects, fewer than 18.
//
//   - Victims and their order: 18. 33 evictions, whose times differ by 0.4 s, at most 5.1 s, and 1.3 s without scenario 4.
//   - OOM kills: 18, and 8 of the 10 scenarios that have any.
//   - Only five pods had a CPU limit: CPU time of four is within 10 %, the other differs by 11 %; throttled time of three, the others by 20 and 35 %.
//   - Scenario 1 agrees, but differed in a later run: without a second eviction the model has 1 MiB more than the threshold.
//   - Scenario 4: a pod reaches its limit 0.3 s before its eviction. The model agrees with 6 MiB less.
//   - Scenario 10: the model evicts a pod that waits for its restart, as it is not measured. The real node did not: stats.Collector lists the runtime
//     every 10 s, and measures a pod that has exited since then. It is not proved that the list was so old in this run.
//   - Scenario 17: the victim with 6 MiB less; CPU time and throttled time differ anyway, like in scenario 16. The cause is not known; the busy host
//     is likely.
func TestIntegrationNodeAgreesWithReality(t *testing.T) {
	files := os.Getenv("NODETEST_FILES")
	if os.Getuid() != 0 || os.Getenv("IN_TEST_VM") == "" || files == "" {
		t.Skip("needs a kernel with cgroup v2 of its own and a directory NODETEST_FILES on a disk: make node-model")
	}
	cost := measureOverhead(t, files)
	t.Logf("overhead: %.1f MiB per worker, %.1f MiB per shim", mib(cost.worker), mib(cost.shim))
	var total agreement
	first := readNumber(t, "NODETEST_FIRST", 0)
	for seed := first; seed < first+readNumber(t, "NODETEST_SCENARIOS", scenarios); seed++ {
		s := generateScenario(seed)
		real := runReal(t, s, cost, files)
		if real.late > disturbedAfter {
			t.Logf("scenario %d was disturbed: a timer was late by %v; it is repeated", seed, real.late)
			real = runReal(t, s, cost, files)
		}
		model := runModel(t, s, cost, real, 0)
		c := compare(&s, real, model)
		total.add(c)
		t.Log(c.row)
		if !c.agrees() {
			t.Logf("scenario %d differs\n  %s\n%s\n%s", seed, s.String(), real.series("real"), model.series("model"))
			for _, less := range []int64{-closeMemory, closeMemory} {
				c := compare(&s, real, runModel(t, s, cost, real, less))
				t.Logf("with %d MiB less in the model: %s", less>>20, c.row)
			}
		}
	}
	t.Log(total.String())
	for aspect, agreed := range total.aspects() {
		assert.GreaterOrEqual(t, agreed, min(mustAgree, total.scenarios*mustAgree/scenarios), aspect)
	}
}

// readNumber returns the number in an environment variable, or missing if it is not set.
func readNumber(t *testing.T, variable string, missing uint64) uint64 {
	t.Helper()
	text, ok := os.LookupEnv(variable)
	if !ok {
		return missing
	}
	n, err := strconv.ParseUint(text, 10, 16)
	require.NoError(t, err, variable)
	return n
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// measureOverhead measures what three workers that do not grow need.
func measureOverhead(t *testing.T, files string) (cost overhead) {
	t.Helper()
	files, err := os.MkdirTemp(files, "idle-")
	require.NoError(t, err)
	defer os.RemoveAll(files)
	n := startRealNode(t, agent.Config{})
	defer n.stop(t)
	settle()
	before := n.availableMemory(t)
	var pods []*corev1.Pod
	for i := range 3 {
		pods = append(pods, nodetest.NewPod(fmt.Sprint("idle", i), nodetest.Resources{}, "memory=0"))
	}
	n.add(t, files, pods...)
	time.Sleep(10 * time.Second)
	settle()
	after := n.availableMemory(t)
	for _, p := range pods {
		s, err := n.cgroups.Stats(t.Context(), cgroupOf(p))
		require.NoError(t, err)
		cost.worker += workingSetOf(&s) / 3
	}
	cost.shim = max((before-after)/3-cost.worker, 0)
	return cost
}

// settle frees the unused memory of this process and waits until the agent is idle.
func settle() {
	time.Sleep(3 * time.Second)
	debug.FreeOSMemory()
}

// cgroupOf returns the cgroup of a pod.
func cgroupOf(pod *corev1.Pod) cgroups.Path {
	return cgroups.PodPath("", cgroups.QOS(qos.StatusClass(pod)), string(pod.UID))
}

// runReal runs the scenario as processes of this kernel.
func runReal(t *testing.T, s scenario, cost overhead, files string) *outcome {
	t.Helper()
	files, err := os.MkdirTemp(files, "scenario-")
	require.NoError(t, err)
	defer os.RemoveAll(files)
	info, err := hardware.Read(os.DirFS("/"))
	require.NoError(t, err)
	debug.FreeOSMemory()
	probe := &realNode{}
	probe.cgroups = openCgroups(t)
	idle := probe.availableMemory(t) - int64(len(s.pods))*(cost.worker+cost.shim)
	config := s.config(idle)
	n := startRealNode(t, config)
	defer n.stop(t)
	settle()
	o := &outcome{config: config, capacity: info.Memory, available: n.availableMemory(t), began: n.age()}
	late := watchTimers(t)
	n.add(t, files, s.pods...)
	o.watch(t.Context(), n.cgroups, s.pods)
	o.late = late()
	o.begins = n.readBegins(t, files, s.pods, o.began)
	n.mu.Lock()
	defer n.mu.Unlock()
	o.log, o.interval = n.log, n.longest
	return o
}

// runModel runs the scenario in a simulated node, with less bytes of available memory than the real one.
func runModel(t *testing.T, s scenario, cost overhead, real *outcome, less int64) *outcome {
	t.Helper()
	options := nodetest.Options{
		Name: nodeName, Config: real.config, Resolution: workerTick, Machine: machine.Spec{CPUs: runtime.NumCPU(), Memory: real.capacity, Tick: tick},
		System: nodetest.Usage{
			CPU: nodetest.Constant(real.systemCPU()), Memory: nodetest.Constant(float64(real.capacity - real.available + int64(len(s.pods))*cost.shim + less)),
		},
		Behave: func(pod *corev1.Pod, _ string) (nodetest.Behavior, bool) {
			b, err := nodetest.ParseBehavior(pod.Annotations[nodetest.AnnotationUsage], 0)
			b.Usage.Memory = nodetest.Sum(b.Usage.Memory, nodetest.Constant(float64(cost.worker)))
			return b, err == nil
		},
		Latency: real.latency,
	}
	o := &outcome{capacity: real.capacity, begins: real.begins}
	synctest.Test(t, func(t *testing.T) {
		n := nodetest.New(t, options)
		n.Advance(3 * time.Second)
		o.began = n.Age()
		require.NoError(t, n.Add(s.pods...))
		o.watch(t.Context(), modelReader{n}, s.pods)
		o.log = n.Log()
	})
	return o
}

// latency returns the latency of a call to the runtime with which a worker of the simulated node begins when that of the real one has begun. A
// container begins after half of the latency of its start.
func (o *outcome) latency(op, id string) time.Duration {
	switch op {
	case "RunPodSandbox":
		if begins := o.begins[id]; len(begins) > 0 {
			return begins[0]
		}
	case "StartContainer":
		uid, attempt, _ := strings.Cut(id, "-main-")
		k, err := strconv.Atoi(attempt)
		created := o.log.Match("default/"+uid, nodetest.KindEvent, "Created")
		if err != nil || k == 0 || k >= min(len(o.begins[uid]), len(created)) {
			return 0
		}
		return 2 * (o.begins[uid][k] - created[k].At + o.began)
	}
	return 3 * time.Millisecond
}

// modelReader reads the machine of a simulated node.
type modelReader struct{ node *nodetest.Node }

// Stats returns the usage of the cgroup p.
func (r modelReader) Stats(ctx context.Context, p cgroups.Path) (cgroups.Stats, error) {
	return r.node.Machine().Cgroups().Stats(ctx, p)
}

// Children returns the names of the cgroups below p.
func (r modelReader) Children(ctx context.Context, p cgroups.Path) ([]string, error) {
	return r.node.Machine().Cgroups().Children(ctx, p)
}

// watchTimers measures by how much a timer is late at most, until the returned function is called.
func watchTimers(t *testing.T) (stop func() time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan time.Duration, 1)
	go func() {
		var late time.Duration
		for ctx.Err() == nil {
			began := time.Now()
			time.Sleep(100 * time.Millisecond)
			late = max(late, time.Since(began)-100*time.Millisecond)
		}
		result <- late
	}()
	return func() time.Duration { cancel(); return <-result }
}
