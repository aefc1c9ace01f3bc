// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/nodetest"
)

// podRow is a row of the table of pods: a pod under a policy.
type podRow struct {
	Policy, Pod, Class string

	CPURequest, CPULimit, CPUMean                     float64 // CPUs; a limit of zero: none
	MemoryRequest, MemoryLimit, MemoryMean, MemoryMax float64 // MiB; a limit of zero: none
	Throttled                                         float64 // seconds
	EvictedAt                                         float64 // seconds; negative: not evicted
	Why                                               string  // message of the eviction or rejection
	OOMKills, Exits                                   int
	NotReady                                          float64 // seconds after it was ready for the first time
}

// total is the sum over the pods of a run.
type total struct {
	Policy                     string
	Evictions, OOMKills        int
	Throttled, NotReady        float64 // seconds
	MemoryMean, CPUMean        float64 // percent of the machine
	MemoryPressure             float64 // percent of the time in which a process of the node waited for memory
	LowestAvailable, Threshold float64 // MiB of memory
}

// podRows returns the rows of a run, in the order of the tracks.
func podRows(r *outcome, t *tracks) (rows []podRow) {
	for _, pod := range t.Pods {
		name := corev1.NamespaceDefault + "/" + pod.Name // pods of a script are in namespace default
		row := podRow{
			Policy: r.policy.name, Pod: pod.Name, Class: pod.Class, CPULimit: pod.CPULimit, MemoryRequest: pod.MemoryRequest, MemoryLimit: pod.MemoryLimit,
			CPUMean: pod.CPU.mean(), MemoryMean: pod.Memory.mean(), MemoryMax: pod.Memory.highest(), Throttled: pod.Throttled.integral(t.Seconds),
			EvictedAt: -1, OOMKills: len(r.log.Match(name, nodetest.KindOOM, "")), Exits: len(r.log.Match(name, nodetest.KindExit, "")),
			NotReady: r.log.NotReady(name, r.end()).Seconds(),
		}
		for i := range r.samples {
			if p := findPod(&r.samples[i], name); p != nil {
				row.CPURequest = p.CPURequest
				break
			}
		}
		for _, e := range r.log.Match(name, nodetest.KindEvent, "") {
			if e.Reason == "Evicted" {
				row.EvictedAt = e.At.Seconds()
			}
			if e.Reason == "Evicted" || strings.HasPrefix(e.Reason, "OutOf") {
				row.Why = strings.TrimSpace(e.Message)
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// findPod returns a pod in a sample, or nil.
func findPod(s *nodetest.Sample, name string) *nodetest.PodSample {
	for i := range s.Pods {
		if s.Pods[i].Name == name {
			return &s.Pods[i]
		}
	}
	return nil
}

// totalOf returns the totals of a run over all pods.
func totalOf(r *outcome, t *tracks, rows []podRow) total {
	first, last := &r.samples[0], &r.samples[len(r.samples)-1]
	sum := total{Policy: r.policy.name, Threshold: float64(r.threshold) / mebi, LowestAvailable: float64(first.MemoryAvailable) / mebi}
	for _, row := range rows {
		if row.EvictedAt >= 0 {
			sum.Evictions++
		}
		sum.OOMKills += row.OOMKills
		sum.Throttled += row.Throttled
		sum.NotReady += row.NotReady
	}
	for i := range r.samples {
		sum.LowestAvailable = min(sum.LowestAvailable, float64(r.samples[i].MemoryAvailable)/mebi)
	}
	sum.MemoryMean = 100 * t.Node.Memory.mean() * mebi / float64(max(last.Memory, 1))
	sum.CPUMean = 100 * t.Node.CPU.integral(t.Seconds) / (float64(max(last.CPUs, 1)) * last.At.Seconds())
	sum.MemoryPressure = 100 * last.Node.MemoryPressure.Seconds() / last.At.Seconds()
	return sum
}

// mean returns the mean of the values that are not NaN, or zero if there are none.
func (s series) mean() float64 {
	sum, n := 0.0, 0
	for _, v := range s {
		if !math.IsNaN(v) {
			sum += v
			n++
		}
	}
	return sum / float64(max(n, 1))
}

// highest returns the largest value, or zero if there are none.
func (s series) highest() (highest float64) {
	for _, v := range s {
		highest = max(highest, orZero(v))
	}
	return highest
}

// integral returns the sum of rates, each multiplied with the seconds since the previous sample.
func (s series) integral(seconds series) (sum float64) {
	last := 0.0
	for i, v := range s {
		sum += orZero(v) * (seconds[i] - last)
		last = seconds[i]
	}
	return sum
}

// span is a time in which a pod has one state.
type span struct {
	From, To float64 // seconds
	State    string  // pending, ready, notReady or ended
}

// spansOf returns the states of a pod until the time end.
func spansOf(log nodetest.Log, pod string, end time.Duration) (spans []span) {
	var phase, ready string
	for _, e := range log.Match(pod, "", "") {
		switch e.Kind {
		case nodetest.KindPhase:
			phase = e.Reason
		case nodetest.KindReady:
			ready = e.Reason
		default:
			continue
		}
		state := "pending"
		switch {
		case phase == string(corev1.PodFailed) || phase == string(corev1.PodSucceeded):
			state = "ended"
		case phase == string(corev1.PodRunning) && ready == "True":
			state = "ready"
		case phase == string(corev1.PodRunning):
			state = "notReady"
		}
		at := e.At.Seconds()
		if n := len(spans); n > 0 && spans[n-1].From == at {
			spans = spans[:n-1] // phase and readiness change at the same time
		}
		if n := len(spans); n > 0 {
			if spans[n-1].State == state {
				spans[n-1].To = end.Seconds()
				continue
			}
			spans[n-1].To = at
		}
		spans = append(spans, span{From: at, To: end.Seconds(), State: state})
	}
	return spans
}
