// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/agent"
	"github.com/seed81659283/nodeagent/nodetest"
	"github.com/seed81659283/nodeagent/nodetest/internal/worker"
)

// Tolerances of the comparison. The evictor observes the node at least every 10 s, and the nearer a threshold is, the more often.
const (
	timeTolerance = 10 * time.Second
	cpuTolerance  = 0.10
	leastCPU      = 0.01 // of a CPU, by which a pod may differ in any case
	leastRateTime = 8 * time.Second
)

// outcome is the result of a scenario on one of the nodes.
type outcome struct {
	config    agent.Config
	idle      int64                      // bytes that are expected to be available when all workers are ready
	capacity  int64                      // bytes of the machine
	available int64                      // bytes when all workers are ready
	began     time.Duration              // age of the node when they start, and when the pods of a simulated node are bound
	begins    map[string][]time.Duration // of the loads of the workers of a pod since then, by UID
	log       nodetest.Log
	machine   worker.Watch
	start     time.Time     // of the workers
	interval  time.Duration // longest time between two observations of the evictor

	samples []sample // one per sampleInterval, or fewer if the machine is busy
}

// sample is the usage of the node and its pods at one time.
type sample struct {
	at        time.Duration // since the start
	available int64         // bytes
	pods      map[string]podSample
}

// podSample is the usage of a pod.
type podSample struct {
	cpu, throttled float64 // seconds
	memory         int64   // bytes of the working set
}

// sampleInterval is the time between two samples: no multiple of the period of a CPU quota.
const sampleInterval = 2530 * time.Millisecond

// watch samples the node for the time of a scenario.
func (o *outcome) watch(ctx context.Context, r usageReader, pods []*corev1.Pod) {
	began := time.Now()
	for next := sampleInterval; next <= scenarioSeconds*time.Second; next = max(next+sampleInterval, time.Since(began)) {
		time.Sleep(time.Until(began.Add(next)))
		s := sample{at: time.Since(began), pods: map[string]podSample{}}
		if root, err := r.Stats(ctx, ""); err == nil {
			s.available = o.capacity - workingSetOf(&root)
		}
		for _, p := range pods {
			if usage, ok := readPod(ctx, r, p); ok {
				s.pods[p.Name] = usage
			}
		}
		o.samples = append(o.samples, s)
	}
}

// readPod returns the usage of a pod with a running container, and false for another pod. The throttled time is that of its container.
func readPod(ctx context.Context, r usageReader, pod *corev1.Pod) (s podSample, ok bool) {
	path := cgroupOf(pod)
	total, err := r.Stats(ctx, path)
	if err != nil {
		return s, false
	}
	containers, err := r.Children(ctx, path)
	if err != nil || len(containers) == 0 {
		return s, false
	}
	s.cpu, s.memory = float64(total.CPU.Usage)/1e9, workingSetOf(&total)
	for _, c := range containers {
		if usage, err := r.Stats(ctx, path.Join(c)); err == nil {
			s.throttled += float64(usage.CPU.ThrottledTime) / 1e9
		}
	}
	return s, true
}

// names returns the pods of the entries of a kind in their order, and their times since the start.
func (o *outcome) names(kind, reason string) (pods []string, times []time.Duration) {
	for _, e := range o.log.Match("", kind, reason) {
		pods = append(pods, strings.TrimPrefix(e.Pod, "default/"))
		times = append(times, e.At-o.began)
	}
	return pods, times
}

// list returns pods with their times, for the table.
func list(pods []string, times []time.Duration) string {
	if len(pods) == 0 {
		return "-"
	}
	var b strings.Builder
	for i, p := range pods {
		fmt.Fprintf(&b, "%s@%.1f ", p, times[i].Seconds())
	}
	return strings.TrimSpace(b.String())
}

// series returns available memory and the memory of each pod over time.
func (o *outcome) series(name string) string {
	var b strings.Builder
	for _, s := range o.samples {
		fmt.Fprintf(&b, "  %s %4.1f s: %4.0f MiB available;", name, s.at.Seconds(), mib(s.available))
		for _, p := range slices.Sorted(maps.Keys(s.pods)) {
			u := s.pods[p]
			fmt.Fprintf(&b, " %s %.0f MiB %.1f CPU s", p, mib(u.memory), u.cpu)
			if u.throttled > 0 {
				fmt.Fprintf(&b, " %.1f throttled", u.throttled)
			}
		}
		b.WriteString("\n")
	}
	for _, e := range o.log {
		e.At -= o.began
		fmt.Fprintf(&b, "  %s %s\n", name, e)
	}
	return b.String()
}

// comparison is the result of one scenario.
type comparison struct {
	row                                 string
	victims, times, oom, cpu, throttled bool
	evictions, limited                  int           // compared evictions and pods with a CPU limit
	cpuNear, throttledNear              int           // pods with a CPU limit within the tolerance
	killed                              bool          // the OOM killer has ended a container on one of the nodes
	sumTime, worstTime                  time.Duration // sum and largest of the differences of the times of an eviction
	worstCPU, worstThrottled            float64       // largest relative difference
}

// agrees reports whether the nodes agree in all aspects.
func (c *comparison) agrees() bool { return c.victims && c.times && c.oom && c.cpu && c.throttled }

// compare compares the results of a scenario.
func compare(s *scenario, measured, model *outcome) *comparison {
	c := &comparison{times: true, cpu: true, throttled: true}
	realPods, realTimes := measured.names(nodetest.KindEvent, "Evicted")
	modelPods, modelTimes := model.names(nodetest.KindEvent, "Evicted")
	c.victims = slices.Equal(realPods, modelPods)
	for i := range min(len(realPods), len(modelPods)) {
		if realPods[i] == modelPods[i] {
			c.evictions++
			difference := (realTimes[i] - modelTimes[i]).Abs()
			c.sumTime, c.worstTime = c.sumTime+difference, max(c.worstTime, difference)
		}
	}
	c.times = c.worstTime <= timeTolerance
	realKilled, realKills := measured.names(nodetest.KindOOM, "")
	modelKilled, modelKills := model.names(nodetest.KindOOM, "")
	c.oom, c.killed = slices.Equal(realKilled, modelKilled), len(realKilled)+len(modelKilled) > 0
	var cpu strings.Builder
	for _, p := range s.pods {
		if p.Spec.Containers[0].Resources.Limits.Cpu().IsZero() {
			continue
		}
		c.compareCPU(p.Name, measured, model, &cpu)
	}
	_, systemCPU := measured.systemCPU()
	c.row = fmt.Sprintf("%2d %s | evicted: real %s, model %s | OOM: real %s, model %s | CPU%s | %v, interval %v, system %.2f CPUs", s.seed, verdict(c.agrees()),
		list(realPods, realTimes), list(modelPods, modelTimes), list(realKilled, realKills), list(modelKilled, modelKills), cpu.String(),
		measured.machine, measured.interval.Round(time.Millisecond), systemCPU)
	return c
}

// verdict returns a word for the table.
func verdict(agrees bool) string {
	if agrees {
		return "agrees "
	}
	return "DIFFERS"
}

// compareCPU compares the CPU time and the throttled time per second of a pod, while its worker uses CPU on both nodes.
func (c *comparison) compareCPU(pod string, measured, model *outcome, row *strings.Builder) {
	realCPU, realThrottled, ok := measured.rates(pod)
	modelCPU, modelThrottled, also := model.rates(pod)
	if !ok || !also {
		fmt.Fprintf(row, " %s too short", pod)
		return
	}
	c.limited++
	cpu, throttled := differ(realCPU, modelCPU), differ(realThrottled, modelThrottled)
	if cpu <= cpuTolerance {
		c.cpuNear++
	}
	if throttled <= cpuTolerance {
		c.throttledNear++
	}
	c.worstCPU, c.worstThrottled = max(c.worstCPU, cpu), max(c.worstThrottled, throttled)
	c.cpu, c.throttled = c.worstCPU <= cpuTolerance, c.worstThrottled <= cpuTolerance
	fmt.Fprintf(row, " %s %.3f/%.3f, throttled %.3f/%.3f", pod, realCPU, modelCPU, realThrottled, modelThrottled)
}

// rates returns the CPU time and the throttled time of a pod per second, from two seconds after its worker has begun until its last sample. ok is
// false if these are less than eight seconds.
func (o *outcome) rates(pod string) (cpu, throttled float64, ok bool) {
	var first, last *sample
	for i := range o.samples {
		s := &o.samples[i]
		if _, runs := s.pods[pod]; !runs || len(o.begins[pod]) == 0 || s.at < o.begins[pod][0]+2*time.Second {
			continue
		}
		if first == nil {
			first = s
		}
		last = s
	}
	if first == nil || last.at-first.at < leastRateTime {
		return 0, 0, false
	}
	a, b, seconds := first.pods[pod], last.pods[pod], (last.at - first.at).Seconds()
	return (b.cpu - a.cpu) / seconds, (b.throttled - a.throttled) / seconds, true
}

// saturated is the part of a tick after which no CPU time is left for a process that wants more: the rest goes to threads of the kernel.
const saturated = 0.9

// systemCPU returns the CPUs that the agent and this test have wanted, by the time since the start. In a tick in which no CPU was idle they may have
// wanted more than they got: then they want a whole CPU.
func (o *outcome) systemCPU() (curve nodetest.Curve, mean float64) {
	var steps []nodetest.Step
	list := o.machine.CPU
	for i := 1; i < len(list); i++ {
		took := list[i].At.Sub(list[i-1].At).Seconds()
		system, pods := (list[i].Parent-list[i-1].Parent).Seconds()/took, (list[i].Pods-list[i-1].Pods).Seconds()/took
		if system > 0.05 && system+pods >= saturated {
			system = 1
		}
		steps = append(steps, nodetest.Step{At: list[i-1].At.Sub(o.start), Amount: min(system, 1)})
	}
	if n := len(list); n > 1 {
		mean = (list[n-1].Parent - list[0].Parent).Seconds() / list[n-1].At.Sub(list[0].At).Seconds()
	}
	return nodetest.Steps(steps...), mean
}

// meanCPU returns the mean CPUs that a pod has used while its container ran.
func (o *outcome) meanCPU(pod string) float64 {
	var used, seconds float64
	for i := 1; i < len(o.samples); i++ {
		a, runs := o.samples[i-1].pods[pod]
		b, stillRuns := o.samples[i].pods[pod]
		if runs && stillRuns {
			used, seconds = used+max(b.cpu-a.cpu, 0), seconds+(o.samples[i].at-o.samples[i-1].at).Seconds()
		}
	}
	return used / max(seconds, 1)
}

// differ returns the difference of two rates relative to the larger one, or zero if it is small.
func differ(a, b float64) float64 {
	if difference := math.Abs(a - b); difference > leastCPU {
		return difference / max(a, b)
	}
	return 0
}

// agreement sums comparisons. Scenarios without an OOM kill or a pod with a CPU limit agree in these aspects: killed and limited count the others.
type agreement struct {
	scenarios, all, victims, times, oom, cpu, throttled int // scenarios
	killed, killedAgree                                 int // scenarios with an OOM kill
	repeated, disturbed                                 int // runs that the host disturbed, and scenarios whose last run it disturbed
	evictions, limited, cpuNear, throttledNear          int // evictions and pods
	sumTime, worstTime                                  time.Duration
	worstCPU, worstThrottled                            float64
}

// add adds a comparison.
func (a *agreement) add(c *comparison) {
	a.scenarios++
	for _, aspect := range []struct {
		agreed bool
		count  *int
	}{
		{c.agrees(), &a.all},
		{c.victims, &a.victims},
		{c.times, &a.times},
		{c.oom, &a.oom},
		{c.cpu, &a.cpu},
		{c.throttled, &a.throttled},
		{c.killed, &a.killed},
		{c.killed && c.oom, &a.killedAgree},
	} {
		if aspect.agreed {
			*aspect.count++
		}
	}
	a.sumTime, a.evictions, a.limited = a.sumTime+c.sumTime, a.evictions+c.evictions, a.limited+c.limited
	a.cpuNear, a.throttledNear = a.cpuNear+c.cpuNear, a.throttledNear+c.throttledNear
	a.worstTime, a.worstCPU, a.worstThrottled = max(a.worstTime, c.worstTime), max(a.worstCPU, c.worstCPU), max(a.worstThrottled, c.worstThrottled)
}

// aspects returns in how many scenarios the nodes agree, by aspect.
func (a *agreement) aspects() map[string]int {
	return map[string]int{
		"all aspects": a.all, "victims of evictions": a.victims, "times of evictions": a.times, "OOM kills": a.oom, "CPU time": a.cpu, "throttled time": a.throttled,
	}
}

// String returns the figures of all scenarios.
func (a *agreement) String() string {
	mean := a.sumTime / time.Duration(max(a.evictions, 1))
	return fmt.Sprintf("%d scenarios: %v\n%d evictions, times differ by %v, at most %v\n%d scenarios with OOM kills, %d agree\n"+
		"%d pods with a CPU limit: CPU time of %d within the tolerance, at most %.0f %%; throttled time of %d, at most %.0f %%\n"+
		"%d runs were repeated because of the host, and %d scenarios were disturbed in their last run", a.scenarios, a.aspects(),
		a.evictions, mean.Round(time.Millisecond), a.worstTime.Round(time.Millisecond), a.killed, a.killedAgree,
		a.limited, a.cpuNear, 100*a.worstCPU, a.throttledNear, 100*a.worstThrottled, a.repeated, a.disturbed)
}
