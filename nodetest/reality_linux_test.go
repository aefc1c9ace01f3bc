// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
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
	"github.com/seed81659283/nodeagent/nodetest/internal/worker"
	"github.com/seed81659283/nodeagent/nodetest/machine"
	"github.com/seed81659283/nodeagent/qos"
)

const (
	scenarios       = 20 // of one run
	mustAgree       = 18
	scenarioSeconds = 40
	tick            = 10 * time.Millisecond // of User Mode Linux
	// maxLost is the part of the time that a host may withhold in delays above the period of a CPU quota, half of the tolerance of CPU time. A
	// scenario that lost more is repeated, and its last run counts.
	maxLost = 0.05
	maxRuns = 3
	// closeMemory is the noise of available memory. A scenario that differs is shown with this much more and less: it may be a close decision.
	closeMemory = 6 << 20 // bytes
)

// overhead is the memory of real processes that a simulated node does not have.
type overhead struct {
	agent  int64 // bytes of an agent without pods
	worker int64 // bytes of a worker before it grows, in the cgroup of its pod
	shim   int64 // bytes of the shim of a container, outside of the pods
}

// The same pods run under package agent on this kernel, as real processes, and in a simulated node with the available memory, the start times of the
// workers, the CPU time of the agent and the options of the real one. Both agree on the pods that are evicted, their order and times, on OOM kills,
// and on CPU time and throttled time of pods with a limit. The simulated processes have, in addition, the memory and the CPU time of a real worker.
//
// User Mode Linux runs with a clock that stands still while the host runs other programs. Each scenario is written to NODETEST_FILES:
// TestNodeAgreesWithRecords compares it again after a change of the model. Scenarios 0 to 19 run, or as many as NODETEST_SCENARIOS from
// NODETEST_FIRST on, up to 39. Section "Agreement with Linux" of package machine has the figures.
//
// Earlier runs differed because of the start of processes, which took 12 to 25 s of each scenario; of memory, which took 35 ms of CPU time per MiB; of
// the CPU time that the host had taken; of containers that were restarted, which the simulated node started too late; and of a scheduler that charged
// the pods in ticks of 10 ms.
func TestIntegrationNodeAgreesWithReality(t *testing.T) {
	files := os.Getenv("NODETEST_FILES")
	if os.Getuid() != 0 || os.Getenv("IN_TEST_VM") == "" || files == "" {
		t.Skip("needs a kernel with cgroup v2 of its own and a directory NODETEST_FILES on a disk: make node-model")
	}
	cost := measureOverhead(t, files)
	t.Logf("overhead: %.1f MiB for the agent, %.1f MiB per worker, %.1f MiB per shim", mib(cost.agent), mib(cost.worker), mib(cost.shim))
	var total agreement
	first := readNumber(t, "NODETEST_FIRST", 0)
	for seed := first; seed < min(first+readNumber(t, "NODETEST_SCENARIOS", scenarios), 2*scenarios); seed++ {
		s := drawScenario(seed, attempts()[seed])
		measured := runReal(t, s, cost, files)
		for run := 1; run < maxRuns && measured.machine.LostShare() > maxLost; run++ {
			t.Logf("scenario %d was disturbed: %v; it is repeated", seed, measured.machine)
			total.repeated++
			measured = runReal(t, s, cost, files)
		}
		if measured.machine.LostShare() > maxLost {
			total.disturbed++
		}
		writeRecord(t, files, &s, cost, measured)
		total.compareModel(t, &s, cost, measured)
	}
	total.check(t)
}

// compareModel runs the scenario of a real node in a simulated one, and adds the comparison.
func (a *agreement) compareModel(t *testing.T, s *scenario, cost overhead, measured *outcome) {
	t.Helper()
	model := runModel(t, s, cost, measured, change{})
	c := compare(s, measured, model)
	a.add(c)
	t.Log(c.row)
	if !c.agrees() || os.Getenv("NODETEST_SERIES") != "" {
		t.Logf("scenario %d\n  %s\n%s\n%s", s.seed, s.String(), measured.series("real"), model.series("model"))
	}
	if !c.agrees() {
		for _, more := range []int64{-closeMemory, closeMemory} {
			c := compare(s, measured, runModel(t, s, cost, measured, change{memory: more}))
			t.Logf("with %d MiB more in the model: %s", more>>20, c.row)
		}
	}
}

// check logs the figures, and fails if too few scenarios agree in an aspect.
func (a *agreement) check(t *testing.T) {
	t.Helper()
	t.Log(a.String())
	for aspect, agreed := range a.aspects() {
		assert.GreaterOrEqual(t, agreed, (a.scenarios*mustAgree+scenarios-1)/scenarios, aspect)
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

// measureOverhead measures what an agent and three workers that do not grow need.
func measureOverhead(t *testing.T, files string) (cost overhead) {
	t.Helper()
	files, err := os.MkdirTemp(files, "idle-")
	require.NoError(t, err)
	defer os.RemoveAll(files)
	empty := availableMemory(t)
	n := startRealNode(t, agent.Config{})
	defer n.stop(t)
	settle()
	before := n.availableMemory(t)
	var pods []*corev1.Pod
	for i := range 3 {
		pods = append(pods, nodetest.NewPod(fmt.Sprint("idle", i), nodetest.Resources{}, "memory=0"))
	}
	n.add(t, files, filepath.Join(files, startFile), pods...)
	awaitReady(t, files, pods)
	settle()
	after := n.availableMemory(t)
	for _, p := range pods {
		s, err := n.cgroups.Stats(t.Context(), cgroupOf(p))
		require.NoError(t, err)
		cost.worker += workingSetOf(&s) / 3
	}
	cost.agent, cost.shim = max(empty-before, 0), max((before-after)/3-cost.worker, 0)
	return cost
}

// availableMemory returns memory.available of this machine without a node.
func availableMemory(t *testing.T) int64 {
	t.Helper()
	debug.FreeOSMemory()
	n := &realNode{cgroups: openCgroups(t)}
	return n.availableMemory(t)
}

// startFile is the name of the file that starts the workers.
const startFile = "start"

// settle frees the unused memory of this process and waits until the agent is idle.
func settle() {
	time.Sleep(3 * time.Second)
	debug.FreeOSMemory()
}

// cgroupOf returns the cgroup of a pod.
func cgroupOf(pod *corev1.Pod) cgroups.Path {
	return cgroups.PodPath("", cgroups.QOS(qos.StatusClass(pod)), string(pod.UID))
}

// runReal runs the scenario as processes of this kernel. They wait until all of them are ready: the start of a process takes CPU time that the others
// and the agent would lack, and which a simulated node does not need.
func runReal(t *testing.T, s scenario, cost overhead, files string) *outcome {
	t.Helper()
	files, err := os.MkdirTemp(files, "scenario-")
	require.NoError(t, err)
	defer os.RemoveAll(files)
	info, err := hardware.Read(os.DirFS("/"))
	require.NoError(t, err)
	idle := availableMemory(t) - cost.agent - int64(len(s.pods))*(cost.worker+cost.shim)
	config := s.config(idle)
	n := startRealNode(t, config)
	defer n.stop(t)
	start := filepath.Join(files, startFile)
	n.add(t, files, start, s.pods...)
	awaitReady(t, files, s.pods)
	settle()
	stop, err := worker.StartWatch(t.Context())
	require.NoError(t, err)
	o := &outcome{config: config, idle: idle, capacity: info.Memory, available: n.availableMemory(t), began: n.age()}
	o.start = time.Now()
	require.NoError(t, os.WriteFile(start, nil, 0o600))
	o.watch(t.Context(), n.cgroups, s.pods)
	o.machine, err = stop()
	require.NoError(t, err)
	o.begins = n.readBegins(t, files, s.pods, o.began)
	n.mu.Lock()
	defer n.mu.Unlock()
	o.log, o.interval = n.log, n.longest
	return o
}

// modelOptions returns the options of a simulated node with the memory, the times and the CPU time of a real one, and with a change.
func modelOptions(s *scenario, cost overhead, measured *outcome, c change) nodetest.Options {
	system := measured.capacity - measured.available - int64(len(s.pods))*cost.worker // the workers of the real one are ready
	if c.uid == "" {
		system += c.memory
	}
	systemCPU, _ := measured.systemCPU()
	starts := map[string]int{} // of the containers of a pod
	return nodetest.Options{
		Name: nodeName, Config: measured.config, Resolution: worker.Tick, Machine: machine.Spec{CPUs: 1, Memory: measured.capacity, Tick: tick},
		System: nodetest.Usage{CPU: func(age time.Duration) float64 { return systemCPU(age - modelDelay) }, Memory: nodetest.Constant(float64(system))},
		Behave: func(pod *corev1.Pod, _ string) (nodetest.Behavior, bool) {
			b, err := nodetest.ParseBehavior(pod.Annotations[nodetest.AnnotationUsage], 0)
			if b.Usage.CPU == nil {
				b.Usage.CPU = nodetest.Constant(measured.meanCPU(pod.Name)) // a real worker wakes up for its memory
			}
			wait := measured.startDelay(pod.Name, starts[pod.Name])
			starts[pod.Name]++
			for _, curve := range []*nodetest.Curve{&b.Usage.CPU, &b.Usage.Memory, &b.Usage.Cache} {
				*curve = delayed(*curve, wait)
			}
			own := cost.worker
			if string(pod.UID) == c.uid {
				own += c.memory
			}
			b.Usage.Memory = nodetest.Sum(b.Usage.Memory, nodetest.Constant(float64(own)))
			return b, err == nil
		},
		Latency: measured.latency,
	}
}

// modelDelay is the age of a simulated node when its pods are bound.
const modelDelay = 3 * time.Second

// runModel runs the scenario in a simulated node with a change.
func runModel(t *testing.T, s *scenario, cost overhead, measured *outcome, c change) *outcome {
	t.Helper()
	options := modelOptions(s, cost, measured, c)
	o := &outcome{capacity: measured.capacity, begins: measured.begins}
	synctest.Test(t, func(t *testing.T) {
		n := nodetest.New(t, options)
		n.Advance(modelDelay)
		o.began = n.Age()
		require.NoError(t, n.Add(s.pods...))
		o.watch(t.Context(), modelReader{n}, s.pods)
		o.log = n.Log()
	})
	return o
}

// runLoop runs the scenario for a time in a Loop. It returns the log, and the age of the node when the pods are bound.
func runLoop(s *scenario, options *nodetest.Options, during time.Duration) (log nodetest.Log, began time.Duration, err error) {
	l, err := nodetest.NewLoop(context.Background(), *options)
	if err != nil {
		return nil, 0, err
	}
	l.Advance(modelDelay)
	began = l.Age()
	err = l.Add(s.pods...)
	l.Advance(during)
	return l.Log(), began, err
}

// latency returns the latency of a call to the runtime with which a container of the simulated node begins when that of the real one has begun: the
// first one with its loads, another one when it is started. A container begins after half of the latency of its start.
func (o *outcome) latency(op, id string) time.Duration {
	switch op {
	case "RunPodSandbox":
		if begins := o.begins[id]; len(begins) > 0 {
			return begins[0]
		}
	case "StartContainer":
		name, attempt, _ := strings.Cut(id, "-main-")
		k, err := strconv.Atoi(attempt)
		created, started := o.log.Match("default/"+name, nodetest.KindEvent, "Created"), o.log.Match("default/"+name, nodetest.KindEvent, "Started")
		if err != nil || k == 0 || k >= min(len(created), len(started)) {
			return 0
		}
		return 2 * (started[k].At - created[k].At)
	}
	return 3 * time.Millisecond
}

// startDelay returns the time from the start number k of the container of a pod until its loads began. A worker whose loads never began has none.
func (o *outcome) startDelay(pod string, k int) time.Duration {
	started := o.log.Match("default/"+pod, nodetest.KindEvent, "Started")
	switch begins := o.begins[pod]; {
	case k == 0 || k >= len(started): // a simulated container that the real node did not start
		return 0
	case k >= len(begins):
		return scenarioSeconds * time.Second
	default:
		return max(begins[k]-(started[k].At-o.began), 0)
	}
}

// delayed returns a curve that is zero for a time and then c.
func delayed(c nodetest.Curve, wait time.Duration) nodetest.Curve {
	if c == nil || wait == 0 {
		return c
	}
	return func(age time.Duration) float64 {
		if age < wait {
			return 0
		}
		return c(age - wait)
	}
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
