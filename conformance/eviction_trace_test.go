// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	kubeeviction "k8s.io/kubernetes/pkg/kubelet/eviction"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/eviction/podevict"
)

// TestEvictionTrace runs 20 passes of the kubelet's manager and of a Policy with the kubelet's rules on the same summaries.
func TestEvictionTrace(t *testing.T) {
	evictionTrace.Run(t, flags.AtMost(20_000))
}

func FuzzEvictionTrace(f *testing.F) { fuzz(f, evictionTrace) }

// trace is the configuration and the history of a node.
type trace struct {
	Settings     settings
	Layout       eviction.Layout
	MaxGrace     int64 // in seconds
	LocalStorage bool
	Pods         []*corev1.Pod
	Passes       []traceStep
}

// traceStep is the state of the node at a pass, and after a reclaim in this pass.
type traceStep struct {
	After   time.Duration // since the previous pass
	Summary *statsapi.Summary
	Reclaim *statsapi.Summary // summary after a reclaim
	Helps   bool              // the reclaim ends all disk pressure; it also ends the trace
	Rest    bool              // memory stays short after the reclaim
}

// tracePass has the actions of a pass.
type tracePass struct {
	Conditions []string
	Starved    []string
	Reclaims   []string
	Evicted    []string
}

var traceStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func makeTrace(c *conformance.Choices) (t trace) {
	t.Settings.Hard, t.Settings.Soft, t.Settings.Grace, t.Settings.Reclaim = conformance.EvictionSettings(c, true, evictionSignals)
	for _, m := range []map[string]string{t.Settings.Hard, t.Settings.Soft} { // the kubelet derives thresholds of containerfs
		maps.DeleteFunc(m, func(key, _ string) bool { return strings.HasPrefix(key, "containerfs") })
	}
	t.Settings.EnforcePods = c.OneIn(2)
	t.Layout = eviction.Layout(c.Int(3))
	t.MaxGrace = conformance.Pick[int64](c, 0, 20, -1, 60)
	t.LocalStorage = c.OneIn(3)
	without := map[string]bool{} // signals without measurements
	for _, s := range evictionSignals {
		without[s] = c.OneIn(8)
	}
	var stats []statsapi.PodStats
	measured := false
	for i := range 1 + c.Int(4) {
		pod, s := conformance.EvictionPod(c, i)
		if s == nil {
			if measured {
				continue // two pods without statistics are equal
			}
			measured = true
		} else {
			stats = append(stats, *distinct(s, i))
		}
		t.Pods = append(t.Pods, pod)
	}
	now, timeless := traceStart, c.OneIn(4)
	at := now
	for range 20 {
		step := traceStep{After: time.Duration(1+c.Int(40)) * time.Second}
		now = now.Add(step.After)
		if !c.OneIn(6) {
			at = now // otherwise the times are those of the previous pass
		}
		short := conformance.Pick(c, "", "memory", "disk", "pid", "memory disk", "memory disk pid")
		step.Summary = nodeSummary(c, short, at, timeless, without)
		step.Summary.Pods = stats
		step.Helps = c.OneIn(4)
		after := *step.Summary
		if step.Helps {
			step.Rest = c.OneIn(2)
			after = *nodeSummary(c, "", at, timeless, without)
			after.Pods = stats
			if step.Rest {
				after.Node.Memory, after.Node.SystemContainers = step.Summary.Node.Memory, step.Summary.Node.SystemContainers
			}
		}
		step.Reclaim = later(&after, at.Add(time.Millisecond), timeless)
		t.Passes = append(t.Passes, step)
	}
	return t
}

// distinct makes the process counts of pods different.
func distinct(s *statsapi.PodStats, i int) *statsapi.PodStats {
	n := uint64(i)
	if s.ProcessStats != nil && s.ProcessStats.ProcessCount != nil {
		n += *s.ProcessStats.ProcessCount * 16
	}
	s.ProcessStats = &statsapi.ProcessStats{ProcessCount: &n}
	return s
}

// nodeSummary returns a summary of a node. short names the scarce resources.
func nodeSummary(c *conformance.Choices, short string, at time.Time, timeless bool, without map[string]bool) *statsapi.Summary {
	const capacity = 4 << 30
	when := metav1.NewTime(at)
	if timeless {
		when = metav1.Time{}
	}
	available := func(signal, resource string) (left, all *uint64) {
		if without[signal] {
			return nil, nil
		}
		n := uint64(capacity) * uint64(80+c.Int(20)) / 100
		if strings.Contains(short, resource) {
			n = uint64(capacity) * uint64(c.Int(256)) / 700
		}
		total := uint64(capacity)
		return &n, &total
	}
	memory := func(signal string) *statsapi.MemoryStats {
		left, all := available(signal, "memory")
		if left == nil {
			return nil
		}
		working := *all - *left
		return &statsapi.MemoryStats{Time: when, AvailableBytes: left, WorkingSetBytes: &working}
	}
	disk := func(name string) *statsapi.FsStats {
		f := &statsapi.FsStats{Time: when}
		f.AvailableBytes, f.CapacityBytes = available(name+".available", "disk")
		f.InodesFree, f.Inodes = available(name+".inodesFree", "disk")
		return f
	}
	s := &statsapi.Summary{}
	s.Node.Memory = memory("memory.available")
	s.Node.SystemContainers = []statsapi.ContainerStats{{Name: statsapi.SystemContainerPods, Memory: memory("allocatableMemory.available")}}
	s.Node.Fs = disk("nodefs")
	s.Node.Runtime = &statsapi.RuntimeStats{ImageFs: disk("imagefs"), ContainerFs: disk("containerfs")}
	if left, all := available("pid.available", "pid"); left != nil {
		most, running := int64(*all), int64(*all-*left)
		s.Node.Rlimit = &statsapi.RlimitStats{Time: when, MaxPID: &most, NumOfRunningProcesses: &running}
	}
	return s
}

// later returns a copy of s with a later time.
func later(s *statsapi.Summary, at time.Time, timeless bool) *statsapi.Summary {
	if timeless {
		return s
	}
	out := *s
	when := metav1.NewTime(at)
	memory := func(m *statsapi.MemoryStats) *statsapi.MemoryStats {
		if m == nil {
			return nil
		}
		n := *m
		n.Time = when
		return &n
	}
	disk := func(f *statsapi.FsStats) *statsapi.FsStats { n := *f; n.Time = when; return &n }
	out.Node.Memory = memory(s.Node.Memory)
	out.Node.SystemContainers = []statsapi.ContainerStats{{Name: statsapi.SystemContainerPods, Memory: memory(s.Node.SystemContainers[0].Memory)}}
	out.Node.Fs = disk(s.Node.Fs)
	out.Node.Runtime = &statsapi.RuntimeStats{ImageFs: disk(s.Node.Runtime.ImageFs), ContainerFs: disk(s.Node.Runtime.ContainerFs)}
	if s.Node.Rlimit != nil {
		limit := *s.Node.Rlimit
		limit.Time = when
		out.Node.Rlimit = &limit
	}
	return &out
}

// traceNode is the node of the kubelet's manager. It records the actions of each pass.
type traceNode struct {
	trace
	step      traceStep
	reclaimed bool
	pass      tracePass
	evicted   string // event of the next killed pod
}

func (n *traceNode) HasDedicatedImageFs(context.Context) (bool, error) {
	return n.Layout != eviction.SingleFS, nil
}

func (n *traceNode) HasDedicatedContainerFs(context.Context) (bool, error) {
	return n.Layout == eviction.SplitFS, nil
}

func (n *traceNode) Get(context.Context, bool) (*statsapi.Summary, error) {
	switch {
	case n.step.Summary == nil: // before the first pass
		return &statsapi.Summary{}, nil
	case n.reclaimed:
		return n.step.Reclaim, nil
	default:
		return n.step.Summary, nil
	}
}

func (n *traceNode) GetCPUAndMemoryStats(ctx context.Context) (*statsapi.Summary, error) {
	return n.Get(ctx, false)
}

func (n *traceNode) DeleteAllUnusedContainers(context.Context) error {
	n.reclaimed = true
	n.pass.Reclaims = append(n.pass.Reclaims, "containers")
	return nil
}

func (n *traceNode) DeleteUnusedImages(context.Context) error {
	n.reclaimed = true
	n.pass.Reclaims = append(n.pass.Reclaims, "images")
	return nil
}

func (n *traceNode) Event(runtime.Object, string, string, string) {}

func (n *traceNode) Eventf(_ runtime.Object, _, reason, format string, args ...any) {
	n.pass.Starved = append(n.pass.Starved, reason+" "+fmt.Sprintf(format, args...))
}

func (n *traceNode) AnnotatedEventf(_ runtime.Object, annotations map[string]string, _, reason, format string, args ...any) {
	if len(annotations) == 0 {
		annotations = nil
	}
	n.evicted = fmt.Sprintf("%s %q %v", reason, fmt.Sprintf(format, args...), annotations)
}

// kill records the eviction of a pod in the format of trace.explain.
func (n *traceNode) kill(pod *corev1.Pod, _ bool, grace *int64, setStatus func(*corev1.PodStatus)) error {
	var status corev1.PodStatus
	setStatus(&status)
	text := fmt.Sprintf("%s grace %d: %s, %s %s %q", pod.Name, max(*grace, 1), n.evicted, status.Phase, status.Reason, status.Message)
	for _, c := range status.Conditions {
		text += fmt.Sprintf(" %s=%s %s %q", c.Type, c.Status, c.Reason, c.Message)
	}
	n.pass.Evicted = append(n.pass.Evicted, text)
	return nil
}

// newTraceManager returns the kubelet's eviction manager for a node.
func newTraceManager(t trace, clock *testingclock.FakeClock) *kubeeviction.ConformanceManager {
	n := &traceNode{trace: t}
	m, _ := n.manager(clock)
	return m
}

func (n *traceNode) manager(clock *testingclock.FakeClock) (*kubeeviction.ConformanceManager, error) {
	thresholds, err := n.Settings.kubelet()
	config := kubeeviction.Config{Thresholds: thresholds, PressureTransitionPeriod: 5 * time.Minute, MaxPodGracePeriodSeconds: n.MaxGrace}
	return kubeeviction.NewConformanceManager(n, config, n.kill, n, n, n, clock, n.LocalStorage), err
}

// kubelet runs all passes of the kubelet. It repeats a pass whose result differs from ours, because the kubelet handles
// thresholds in the random order of a map.
func (t trace) kubelet() (passes []tracePass) {
	want := t.ours()
	clock := testingclock.NewFakeClock(traceStart)
	n := &traceNode{trace: t}
	m, err := n.manager(clock)
	if err != nil {
		return []tracePass{{Conditions: []string{err.Error()}}}
	}
	pods := func() []*corev1.Pod { return slices.Clone(t.Pods) }
	if err := m.Synchronize(context.Background(), n, func() []*corev1.Pod { return nil }); err != nil { // the first pass adds the thresholds of containerfs
		panic(err)
	}
	for i, step := range t.Passes {
		clock.Step(step.After)
		n.step = step
		restore := m.Save()
		for range 100 {
			restore()
			n.pass, n.reclaimed = tracePass{}, false
			if err := m.Synchronize(context.Background(), n, pods); err != nil {
				panic(err)
			}
			for _, c := range m.Conditions() {
				n.pass.Conditions = append(n.pass.Conditions, string(c))
			}
			slices.Sort(n.pass.Conditions)
			same := n.pass
			if n.reclaimed && step.Rest {
				same.Evicted = nil // covered by the exception of evictionTrace
			}
			if i < len(want) && reflect.DeepEqual(same, want[i]) {
				break
			}
		}
		passes = append(passes, n.pass)
		if n.reclaimed && step.Helps {
			break // the observations after a successful reclaim differ
		}
	}
	return passes
}

// ours runs all passes of a Policy.
func (t trace) ours() (passes []tracePass) {
	thresholds, err := t.Settings.ours()
	if err != nil {
		return []tracePass{{Conditions: []string{err.Error()}}}
	}
	policy, err := eviction.NewPolicy(eviction.Rules{
		Thresholds: thresholds, MaxGracePeriod: time.Duration(t.MaxGrace) * time.Second, NoLocalStorage: !t.LocalStorage,
	}.Kubelet())
	if err != nil {
		panic(err)
	}
	now, state := traceStart, eviction.State{}
	for _, step := range t.Passes {
		now = now.Add(step.After)
		d := policy.Decide(state, t.observe(step.Summary), now)
		pass, summary := tracePass{}, step.Summary
		starved := func() {
			if d.StarvedSignal != "" && pass.Starved == nil {
				pass.Starved = []string{"EvictionThresholdMet Attempting to reclaim " + string(d.StarvedSignal.Resource())}
			}
		}
		starved()
		for _, c := range d.Conditions {
			pass.Conditions = append(pass.Conditions, string(c))
		}
		slices.Sort(pass.Conditions)
		if d.Reclaim != nil {
			for _, k := range []struct {
				kind eviction.ReclaimKind
				name string
			}{{eviction.ReclaimContainers, "containers"}, {eviction.ReclaimImages, "images"}} {
				if d.Reclaim.Kind&k.kind != 0 {
					pass.Reclaims = append(pass.Reclaims, k.name)
				}
			}
			summary = step.Reclaim
			d = policy.Decide(d.State.Reclaimed(*d.Reclaim, 0, now), t.observe(summary), now)
		}
		state = d.State
		for _, e := range d.Evict {
			pass.Evicted = append(pass.Evicted, t.explain(e, summary))
			state = state.Evicted(e.UID)
		}
		passes = append(passes, pass)
		if pass.Reclaims != nil && step.Helps {
			break
		}
	}
	return passes
}

func (t trace) observe(s *statsapi.Summary) eviction.Observation {
	o := eviction.Observation{Layout: t.Layout, Measured: true}
	var err error
	if o.Readings, err = podevict.Readings(s); err != nil {
		panic(err)
	}
	if o.Candidates, err = podevict.Candidates(t.Pods, s, podevict.Options{Layout: t.Layout}); err != nil {
		panic(err)
	}
	return o
}

// explain describes the eviction of a pod, in the format of traceNode.kill.
func (t trace) explain(e eviction.Eviction, s *statsapi.Summary) string {
	pod := t.Pods[slices.IndexFunc(t.Pods, func(p *corev1.Pod) bool { return string(p.UID) == e.UID })]
	why := podevict.Explain(e, pod, s)
	text := fmt.Sprintf("%s grace %d: %s %q %v, Failed %s %q", pod.Name, int64(e.Grace/time.Second), why.Reason, why.Message, why.Annotations, why.Reason, why.Message)
	for _, c := range why.Conditions {
		text += fmt.Sprintf(" %s=%s %s %q", c.Type, c.Status, c.Reason, c.Message)
	}
	return text
}

var evictionTrace = conformance.Comparison[trace, []tracePass]{
	Make:    makeTrace,
	Kubelet: func(t trace) []tracePass { return t.kubelet() },
	Ours:    func(t trace) []tracePass { return t.ours() },
	Exceptions: []conformance.Exception[trace, []tracePass]{{
		Name: "another threshold after a reclaim", Reason: "a disk that is no longer short costs no pod; the kubelet evicts for it while any other threshold is met",
		When: func(t trace) bool { return slices.ContainsFunc(t.Passes, func(s traceStep) bool { return s.Rest }) },
		Want: func(t trace, kubelet []tracePass) []tracePass {
			last := len(kubelet) - 1
			if kubelet[last].Reclaims != nil && t.Passes[last].Rest {
				kubelet[last].Evicted = nil
			}
			return kubelet
		},
	}},
}
