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
	capacity  int64                      // bytes of the machine
	available int64                      // bytes when the pods are bound
	began     time.Duration              // age of the node when the pods are bound
	begins    map[string][]time.Duration // of the workers of a pod since the binding, by UID
	log       nodetest.Log
	late      time.Duration // of a timer
	interval  time.Duration // longest time between two observations of the evictor

	samples []sample // one per second, or fewer if the machine is busy
}

// sample is the usage of the node and its pods at one time.
type sample struct {
	at        time.Duration // since the binding of the pods
	system    float64       // seconds of CPU time outside of the pods
	available int64         // bytes
	pods      map[string]podSample
}

// podSample is the usage of a pod.
type podSample struct {
	cpu, throttled float64 // seconds
	memory         int64   // bytes of the working set
}

// watch samples the node for the time of a scenario.
func (o *outcome) watch(ctx context.Context, r usageReader, pods []*corev1.Pod) {
	began := time.Now()
	for next := time.Second; next <= scenarioSeconds*time.Second; next = max(next+time.Second, time.Since(began)) {
		time.Sleep(time.Until(began.Add(next)))
		s := sample{at: time.Since(began), pods: map[string]podSample{}}
		if root, err := r.Stats(ctx, ""); err == nil {
			s.available = o.capacity - workingSetOf(&root)
			if kubepods, err := r.Stats(ctx, "kubepods"); err == nil {
				s.system = float64(root.CPU.Usage-min(root.CPU.Usage, kubepods.CPU.Usage)) / 1e9
			}
		}
		for _, p := range pods {
			if usage, ok := readPod(ctx, r, p); ok {
				s.pods[p.Name] = usage
			}
		}
		o.samples = append(o.samples, s)
	}
}

// readPod returns the usage of a pod with a running container, and false for another pod. The throttled time is that of its containers.
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

// names returns the pods of the entries of a kind in their order, and their times since the binding of the pods.
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
	for i, s := range o.samples {
		if i%2 == 1 {
			fmt.Fprintf(&b, "  %s %4.1f s: %4.0f MiB available;", name, s.at.Seconds(), mib(s.available))
			for _, p := range slices.Sorted(maps.Keys(s.pods)) {
				fmt.Fprintf(&b, " %s %.0f", p, mib(s.pods[p].memory))
			}
			b.WriteString("\n")
		}
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
func compare(s *scenario, real, model *outcome) *comparison {
	c := &comparison{times: true, cpu: true, throttled: true}
	realPods, realTimes := real.names(nodetest.KindEvent, "Evicted")
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
	realKilled, realKills := real.names(nodetest.KindOOM, "")
	modelKilled, modelKills := model.names(nodetest.KindOOM, "")
	c.oom, c.killed = slices.Equal(realKilled, modelKilled), len(realKilled)+len(modelKilled) > 0
	var cpu strings.Builder
	for _, p := range s.pods {
		if p.Spec.Containers[0].Resources.Limits.Cpu().IsZero() {
			continue
		}
		c.compareCPU(p.Name, real, model, &cpu)
	}
	c.row = fmt.Sprintf("%2d %s | evicted: real %s, model %s | OOM: real %s, model %s | CPU%s | late %v, interval %v, system %.2f CPUs", s.seed, verdict(c.agrees()),
		list(realPods, realTimes), list(modelPods, modelTimes), list(realKilled, realKills), list(modelKilled, modelKills), cpu.String(),
		real.late.Round(time.Millisecond), real.interval.Round(time.Millisecond), real.systemCPU())
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
func (c *comparison) compareCPU(pod string, real, model *outcome, row *strings.Builder) {
	realCPU, realThrottled, ok := real.rates(pod)
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

// systemCPU returns the mean CPUs that processes outside of the pods have used.
func (o *outcome) systemCPU() float64 {
	if len(o.samples) < 2 {
		return 0
	}
	first, last := o.samples[0], o.samples[len(o.samples)-1]
	return (last.system - first.system) / (last.at - first.at).Seconds()
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
		{c.agrees(), &a.all}, {c.victims, &a.victims}, {c.times, &a.times}, {c.oom, &a.oom}, {c.cpu, &a.cpu}, {c.throttled, &a.throttled},
		{c.killed, &a.killed}, {c.killed && c.oom, &a.killedAgree},
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
		"%d pods with a CPU limit: CPU time of %d within the tolerance, at most %.0f %%; throttled time of %d, at most %.0f %%", a.scenarios, a.aspects(),
		a.evictions, mean.Round(time.Millisecond), a.worstTime.Round(time.Millisecond), a.killed, a.killedAgree,
		a.limited, a.cpuNear, 100*a.worstCPU, a.throttledNear, 100*a.worstThrottled)
}
