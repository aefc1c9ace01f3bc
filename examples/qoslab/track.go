// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/nodetest"
)

// series are values at the times of samples. NaN is no value.
type series []float64

// MarshalJSON writes five significant digits of each value, and null for NaN.
func (s series) MarshalJSON() ([]byte, error) { //nolint:unparam // it implements json.Marshaler
	var b bytes.Buffer
	b.WriteByte('[')
	for i, v := range s {
		if i > 0 {
			b.WriteByte(',')
		}
		if math.IsNaN(v) || math.IsInf(v, 0) {
			b.WriteString("null")
		} else {
			b.WriteString(strconv.FormatFloat(v, 'g', 5, 64))
		}
	}
	b.WriteByte(']')
	return b.Bytes(), nil
}

// track is the usage of a pod, a QoS class or a node over time. Rates are those since the previous sample.
type track struct {
	Name  string `json:"name"`
	Class string `json:"class"`

	Memory         series `json:"memory"`         // working set in MiB
	Cache          series `json:"cache"`          // page cache in MiB
	CPU            series `json:"cpu"`            // CPUs
	Throttled      series `json:"throttled"`      // CPUs that quotas have kept from running
	CPUPressure    series `json:"cpuPressure"`    // percent of the time in which a process waited for CPU; of a class the highest of its pods
	MemoryPressure series `json:"memoryPressure"` // as cpuPressure, for memory
	Disk           series `json:"disk"`           // MiB
	Lost           series `json:"lost"`           // evictions and OOM kills so far

	MemoryLimit   float64 `json:"memoryLimit"`   // MiB; zero: none
	MemoryRequest float64 `json:"memoryRequest"` // MiB
	MemoryHigh    series  `json:"memoryHigh"`    // MiB; NaN: none
	CPULimit      float64 `json:"cpuLimit"`      // CPUs; zero: none
}

const mebi = 1 << 20

// newTrack returns a track for length samples, whose values are all NaN.
func newTrack(name, class string, length int) *track {
	t := &track{Name: strings.TrimPrefix(name, corev1.NamespaceDefault+"/"), Class: class}
	for _, s := range t.all() {
		*s = make(series, length)
		for i := range *s {
			(*s)[i] = math.NaN()
		}
	}
	return t
}

// all returns all series of t.
func (t *track) all() []*series {
	return []*series{&t.Memory, &t.Cache, &t.CPU, &t.Throttled, &t.CPUPressure, &t.MemoryPressure, &t.Disk, &t.Lost, &t.MemoryHigh}
}

// counterIncrease returns by how much a counter has increased. If now is below last, the counter was reset, and the increase is now.
func counterIncrease(last, now time.Duration) time.Duration {
	if now < last {
		return now
	}
	return now - last
}

// setUsage sets the values of sample i from the usage u. last is the usage dt earlier.
func (t *track) setUsage(i int, u, last *nodetest.CgroupUsage, dt time.Duration) {
	t.Memory[i], t.Cache[i], t.Disk[i] = float64(u.WorkingSet)/mebi, float64(u.Cache)/mebi, float64(u.Disk)/mebi
	rate := func(last, now time.Duration) float64 {
		return counterIncrease(last, now).Seconds() / max(dt, time.Millisecond).Seconds()
	}
	t.CPU[i], t.Throttled[i] = rate(last.CPU, u.CPU), rate(last.Throttled, u.Throttled)
	t.CPUPressure[i] = min(100, 100*rate(last.CPUPressure, u.CPUPressure))
	t.MemoryPressure[i] = min(100, 100*rate(last.MemoryPressure, u.MemoryPressure))
}

// addSample adds the values of sample i of a pod to the values of its QoS class.
func (t *track) addSample(i int, pod *track) {
	for _, pair := range [][2]series{{t.Memory, pod.Memory}, {t.Cache, pod.Cache}, {t.CPU, pod.CPU}, {t.Throttled, pod.Throttled}, {t.Disk, pod.Disk}, {t.Lost, pod.Lost}} {
		pair[0][i] = orZero(pair[0][i]) + orZero(pair[1][i])
	}
	t.CPUPressure[i] = max(orZero(t.CPUPressure[i]), orZero(pod.CPUPressure[i]))
	t.MemoryPressure[i] = max(orZero(t.MemoryPressure[i]), orZero(pod.MemoryPressure[i]))
}

// orZero returns v, or zero if it is NaN.
func orZero(v float64) float64 {
	if math.IsNaN(v) {
		return 0
	}
	return v
}

// tracks are all tracks of a run.
type tracks struct {
	Seconds series // times of the samples
	Node    *track
	Classes []*track // the QoS classes that have pods: Guaranteed, Burstable, BestEffort
	Pods    []*track // in the order of their names
}

// tracksOf returns the tracks of a run.
func tracksOf(r *outcome) *tracks {
	length := len(r.samples)
	t := &tracks{Seconds: make(series, length), Node: newTrack("node", "", length)}
	byName, losses := map[string]*track{}, lossesOf(r.log)
	var last nodetest.Sample
	for i := range r.samples {
		s := &r.samples[i]
		t.Seconds[i] = s.At.Seconds()
		dt := s.At - last.At
		t.Node.setUsage(i, &s.Node, &last.Node, dt)
		t.Node.Lost[i] = 0
		for j := range s.Pods {
			p := &s.Pods[j]
			pod := byName[p.Name]
			if pod == nil {
				pod = newTrack(p.Name, string(p.Class), length)
				pod.MemoryLimit, pod.MemoryRequest, pod.CPULimit = float64(p.MemoryLimit)/mebi, float64(p.MemoryRequest)/mebi, p.CPULimit
				byName[p.Name], t.Pods = pod, append(t.Pods, pod)
			}
			pod.Lost[i] = float64(sort.Search(len(losses[p.Name]), func(k int) bool { return losses[p.Name][k] > s.At }))
			t.Node.Lost[i] += pod.Lost[i]
			if p.Phase != corev1.PodFailed && p.Phase != corev1.PodSucceeded {
				pod.setUsage(i, &p.Usage, findUsage(&last, p.Name), dt)
			}
			if p.MemoryHigh > 0 {
				pod.MemoryHigh[i] = float64(p.MemoryHigh) / mebi
			}
		}
		last = *s
	}
	slices.SortStableFunc(t.Pods, func(a, b *track) int { return naturalCompare(a.Name, b.Name) })
	t.addClasses(length)
	return t
}

// addClasses adds the tracks of the QoS classes that have pods.
func (t *tracks) addClasses(length int) {
	for _, name := range []corev1.PodQOSClass{corev1.PodQOSGuaranteed, corev1.PodQOSBurstable, corev1.PodQOSBestEffort} {
		class := newTrack(string(name), string(name), length)
		found := false
		for _, pod := range t.Pods {
			if pod.Class != string(name) {
				continue
			}
			found = true
			for i := range length {
				class.addSample(i, pod)
			}
		}
		if found {
			t.Classes = append(t.Classes, class)
		}
	}
}

// findUsage returns the usage of a pod in a sample, or a zero usage.
func findUsage(s *nodetest.Sample, name string) *nodetest.CgroupUsage {
	for i := range s.Pods {
		if s.Pods[i].Name == name {
			return &s.Pods[i].Usage
		}
	}
	return &nodetest.CgroupUsage{}
}

// lossesOf returns the times of the evictions and OOM kills of each pod, in order.
func lossesOf(log nodetest.Log) map[string][]time.Duration {
	losses := map[string][]time.Duration{}
	for i := range log {
		if e := &log[i]; isLoss(e) {
			losses[e.Pod] = append(losses[e.Pod], e.At)
		}
	}
	return losses
}

// isLoss reports whether an entry is an eviction or an OOM kill.
func isLoss(e *nodetest.Entry) bool {
	return e.Kind == nodetest.KindOOM || e.Kind == nodetest.KindEvent && e.Reason == "Evicted"
}
