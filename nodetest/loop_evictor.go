// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/eviction/podevict"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// loopEvictor evicts the pods of a Loop. In each pass it measures the node, calls Policy.Decide of package eviction, and executes the decision.
type loopEvictor struct {
	loop       *Loop
	state      eviction.State
	conditions []eviction.Condition
	layout     eviction.Layout
	summary    *statsapi.Summary // of the measurement of pods in the current pass; nil: none
	lastPass   time.Time
	passID     int           // number of the scheduled pass; passes with a smaller number are cancelled
	stalled    time.Duration // memory stall time of the machine at the last wake-up
	paused     bool          // no pass is scheduled, because it would decide nothing
	wake       time.Time     // with paused: time of the pass after the last pass
	measured   time.Time     // last pass that has measured pods
	changes    int           // changes of the machine until that pass
}

// Times of package eviction and podevict.
const (
	minEvictionPeriod = 100 * time.Millisecond
	measurePeriod     = 10 * time.Second      // between two measurements of pods
	wakeStall         = 50 * time.Millisecond // stall time that wakes the evictor
)

// passAt schedules the next pass at the time at, and cancels the pass that was scheduled before.
func (e *loopEvictor) passAt(at time.Time) {
	e.passID++
	e.paused = false
	id := e.passID
	e.loop.queue.schedule(at, func() {
		if e.passID == id {
			e.runPass()
		}
	})
}

// passSoon schedules the next pass of the evictor minEvictionPeriod after the last pass, or now if that time has passed.
func (e *loopEvictor) passSoon() { e.passAt(e.lastPass.Add(minEvictionPeriod)) }

// watchPressure schedules a pass if the processes of the machine have stalled for memory by at least wakeStall since the
// last wake-up.
func (e *loopEvictor) watchPressure() {
	s, err := e.loop.kernel.machine.Cgroups().Sample(e.loop.ctx, "", "", cgroups.PartMemoryPressure)
	if err != nil || s.Memory.Pressure == nil || s.Memory.Pressure.Some.Total < e.stalled+wakeStall {
		return
	}
	e.stalled = s.Memory.Pressure.Some.Total
	if e.loop.ready {
		e.passSoon()
	}
}

// runPass measures the node, executes the decision about it, and schedules the next pass. If the measurement fails, the next pass follows in a
// second.
func (e *loopEvictor) runPass() {
	l := e.loop
	e.lastPass = l.clock()
	changes := l.kernel.countChanges()
	signals, err := l.measurer.Signals(l.ctx)
	if err != nil {
		e.passAt(e.lastPass.Add(time.Second))
		return
	}
	o := podevict.Observe(&signals)
	e.layout = o.Layout
	d := l.setup.policy.Decide(e.state, o, e.lastPass)
	measured := d.NeedsCandidates
	if measured { // a node decides first without them
		o.Measuring = true
		d = l.setup.policy.Decide(e.state, o, e.lastPass)
		e.executeDecision(&d)
		o.Measuring, o.Measured, o.Candidates = false, true, e.measureCandidates()
		d = l.setup.policy.Decide(e.state, o, e.lastPass)
	}
	e.executeDecision(&d)
	e.summary = nil
	if !measured || !e.pauseIfIdle(changes, d.Wake) {
		e.passAt(d.Wake)
	}
}

// measureCandidates returns the active pods with their usage.
func (e *loopEvictor) measureCandidates() []eviction.Candidate {
	e.summary, _ = e.loop.measurer.Summary(e.loop.ctx) // never fails
	isEvicting := func(pod *corev1.Pod) bool { p := e.loop.byUID[string(pod.UID)]; return p != nil && p.eviction != nil }
	pods := e.loop.activePods()
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return compareIdentities(identity(a), identity(b)) })
	list, _ := podevict.Candidates(pods, e.summary, podevict.Options{Layout: e.layout, Evicting: isEvicting}) // the numbers of a machine are valid
	return list
}

// executeDecision stores the state and the conditions of the decision d, and starts the reclaims, evictions and kills in d.
func (e *loopEvictor) executeDecision(d *eviction.Decision) {
	e.state = d.State
	if !slices.Equal(e.conditions, d.Conditions) {
		e.conditions = slices.Clone(d.Conditions)
		e.loop.log.recordConditions(e.conditions)
		if changed := e.loop.observer.conditionsChanged; changed != nil {
			changed()
		}
	}
	if d.Reclaim != nil {
		e.executeReclaim(*d.Reclaim)
	}
	for _, victim := range d.Evict {
		e.evictPod(victim)
	}
	for _, uid := range d.Kill {
		e.killPod(uid)
	}
}

// executeReclaim executes the reclaim r: it frees page cache of the machine, or removes the containers of terminated pods.
func (e *loopEvictor) executeReclaim(r eviction.Reclaim) {
	l := e.loop
	if r.Kind == eviction.ReclaimCache {
		l.kernel.advance()
		freed, _ := l.kernel.machine.Cgroups().Reclaim(l.ctx, "", uint64(max(r.Missing, 0)))
		e.recordReclaim(r, int64(min(freed, math.MaxInt64)))
		return
	}
	pending, freed := 1, int64(0)
	done := func() {
		if pending--; pending == 0 {
			e.recordReclaim(r, freed)
		}
	}
	if r.Kind&eviction.ReclaimContainers != 0 && l.ready {
		for _, p := range l.pods {
			if p.hasTerminated() && len(p.sandboxes)+len(p.containers) > 0 {
				pending++
				freed = 1
				p.clean = append(p.clean, done)
				p.sync()
			}
		}
	}
	done()
}

// recordReclaim stores the result of the reclaim r and schedules a pass. freed is the number of freed bytes; for removed containers it is 1.
func (e *loopEvictor) recordReclaim(r eviction.Reclaim, freed int64) {
	e.loop.queue.after(0, func() {
		e.state = e.state.Reclaimed(r, freed, e.loop.clock())
		e.passSoon()
	})
}

// evictPod records an event and terminates the pod of victim. If the termination takes too long, it kills the pod. During an urgent eviction, it also
// limits the memory of the pod.
func (e *loopEvictor) evictPod(victim eviction.Eviction) {
	l := e.loop
	p := l.byUID[victim.UID]
	if p == nil {
		return
	}
	why := podevict.Explain(victim, p.pod, e.summary)
	l.recordEvent(p.id, podevents.Event{Type: corev1.EventTypeWarning, Reason: why.Reason, Message: why.Message})
	killAfter := max(10*time.Second, victim.Grace+victim.Grace/2)
	if victim.Urgent {
		killAfter = victim.Grace
		e.limitMemory(p)
	}
	ended := false
	l.queue.after(killAfter, func() {
		if !ended {
			e.killPod(victim.UID)
		}
	})
	start := l.agentStarts
	p.evict(podstatus.Eviction{Reason: why.Reason, Message: why.Message, Conditions: why.Conditions, Grace: victim.Grace}, func() {
		ended = true
		l.queue.after(0, func() {
			if l.agentStarts == start {
				e.state = e.state.Evicted(victim.UID)
				e.passSoon()
			}
		})
	})
}

// limitMemory sets memory.high of a pod to its usage.
func (e *loopEvictor) limitMemory(p *loopPod) {
	e.loop.kernel.advance()
	tree := e.loop.kernel.machine.Cgroups()
	if s, err := tree.Sample(e.loop.ctx, p.cgroup, "", cgroups.PartMemory); err == nil {
		_ = tree.Apply(e.loop.ctx, p.cgroup, cgroups.Resources{MemoryHigh: new(int64(min(s.Memory.Current, math.MaxInt64)))}) // fails only if ctx has ended
	}
}

// killPod kills all processes in the cgroup of a pod, without a call of the runtime.
func (e *loopEvictor) killPod(uid string) {
	if p := e.loop.byUID[uid]; p != nil {
		e.loop.kernel.advance()
		_ = e.loop.kernel.machine.Cgroups().Kill(e.loop.ctx, p.cgroup) // fails only if the cgroup is gone
	}
}
