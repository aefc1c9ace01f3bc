// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
	"github.com/seed81659283/nodeagent/probe"
	"github.com/seed81659283/nodeagent/probe/podprobe"
)

// podProbes are the probes of a pod of a Loop. The behavior of a container determines the results of its probes.
type podProbes struct {
	pod     *loopPod
	targets []probe.Target
	states  map[probe.Key]*probeState
}

// probeState is one probe.
type probeState struct {
	state   probe.State
	prober  probe.Prober
	planned time.Time // time of the next probe in the queue; zero: none
}

// result returns the value of the probe with this key, and false if it has none. See podprobe.Results.
func (s *podProbes) result(key probe.Key) (probe.Value, bool) {
	if found := s.states[key]; found != nil {
		return found.state.Value()
	}
	return probe.Value{}, false
}

// stop removes all probes.
func (s *podProbes) stop() { s.targets, s.states = nil, nil }

// update starts, updates and stops the probes of the pod according to status, the last computed status.
func (s *podProbes) update(status *corev1.PodStatus) {
	p := s.pod
	pod := p.pod
	if p.deleted && pod.DeletionTimestamp == nil {
		copied, now := *pod, metav1.NewTime(p.loop.wallClock())
		copied.DeletionTimestamp = &now
		pod = &copied
	}
	targets, _ := podprobe.Targets(pod, status, s.targets, podprobe.Options{Execer: probe.ExecFunc(p.execProbe)}) // a wrong probe fails always
	s.targets = targets
	changed := false
	kept := map[probe.Key]*probeState{}
	for _, t := range targets {
		st := s.states[t.Key]
		if st == nil {
			st = &probeState{state: probe.NewState(s.firstProbe(&t))}
		}
		st.prober, t.StartedAt = t.Prober, p.loop.fromWallClock(t.StartedAt)
		before, had := st.state.Value()
		st.state = st.state.UpdateTarget(t, probe.PreviousRun{AgentStart: p.loop.agentStarted}, p.loop.clock())
		after, has := st.state.Value()
		changed = changed || has && (!had || before != after)
		if t.Kind == probe.Readiness && t.Started && !isContainerReady(status, t.Container) {
			st.state = st.state.TriggerProbe(p.loop.clock())
		}
		kept[t.Key] = st
	}
	s.states = kept
	if changed {
		p.loop.queue.after(0, p.sync)
	}
	for _, t := range targets { // in their order, so that equal times run in it
		s.planProbe(t.Key, kept[t.Key])
	}
}

// firstProbe returns the earliest time of the first probe of t. Soon after a start of the agent, this is half a period
// later, to simulate the random delay of package probe.
func (s *podProbes) firstProbe(t *probe.Target) time.Time {
	now := s.pod.loop.clock()
	if now.Sub(s.pod.loop.agentStarted) < t.Spec.Period {
		return now.Add(t.Spec.Period / 2)
	}
	return now
}

// isContainerReady reports whether the status shows the container as ready.
func isContainerReady(status *corev1.PodStatus, container string) bool {
	for _, list := range [][]corev1.ContainerStatus{status.ContainerStatuses, status.InitContainerStatuses} {
		for i := range list {
			if list[i].Name == container {
				return list[i].Ready
			}
		}
	}
	return false
}

// planProbe schedules the next run of the probe with this key. It does nothing if that run is scheduled already, or if the container cannot be
// probed.
func (s *podProbes) planProbe(key probe.Key, st *probeState) {
	at := st.state.NextProbe()
	if at.IsZero() || at.Equal(st.planned) {
		return
	}
	st.planned = at
	s.pod.loop.queue.schedule(at, func() {
		if s.states[key] == st && st.planned.Equal(at) {
			st.planned = time.Time{}
			s.runProbe(key, st)
		}
	})
}

// runProbe runs the probe with this key. If the probe is no longer due, it schedules the probe instead.
func (s *podProbes) runProbe(key probe.Key, st *probeState) {
	l := s.pod.loop
	if at := st.state.NextProbe(); at.IsZero() || at.After(l.clock()) {
		s.planProbe(key, st)
		return
	}
	st.state = st.state.StartProbe(l.clock())
	value, _ := st.state.Value()
	s.attemptProbe(key, st, value.ContainerID, 1)
}

// probeAttempts is the number of attempts of a probe that returns an error, as in package probe.
const probeAttempts = 3

// attemptProbe probes the container instance with the ID container, with the latency of an ExecSync call. After an error it repeats the probe, until
// number, the number of the attempt, is probeAttempts.
func (s *podProbes) attemptProbe(key probe.Key, st *probeState, container string, number int) {
	l := s.pod.loop
	half := l.options.Latency("ExecSync", container) / 2
	l.queue.after(half, func() {
		result, err := st.prober.Probe(l.ctx)
		l.queue.after(half, func() {
			switch value, _ := st.state.Value(); {
			case s.states[key] != st, st.state.NextProbe().IsZero(): // cancelled
			case value.ContainerID != container:
				s.planProbe(key, st)
			case err != nil && number < probeAttempts:
				s.attemptProbe(key, st, container, number+1)
			default:
				s.applyResult(key, st, result, err)
			}
		})
	})
}

// applyResult adds the result of a probe to its state and schedules the next run. If the value of the probe has changed, it syncs the pod.
func (s *podProbes) applyResult(key probe.Key, st *probeState, result probe.Result, err error) {
	before, had := st.state.Value()
	if err == nil {
		st.state = st.state.AddResult(result.Outcome)
	}
	s.recordFailure(key, result, err)
	s.planProbe(key, st)
	if after, has := st.state.Value(); has != had || after != before {
		s.pod.sync()
	}
}

// recordFailure records an event if the probe has failed.
func (s *podProbes) recordFailure(key probe.Key, result probe.Result, err error) {
	hooks := podevents.Probes(probedPod{s.pod}, s.pod.loop.recordEvent)
	hooks.ProbeFinished(key, result, err, 0)
}

// probedPod implements podevents.Pods for one pod.
type probedPod struct{ pod *loopPod }

// PodStatus returns the identity and the status of the pod.
func (p probedPod) PodStatus(string) (pod cri.PodIdentity, status *corev1.PodStatus, ok bool) {
	return p.pod.id, p.pod.shown, true
}

// execProbe runs an exec probe by calling Behavior.Probe of the container. An error of that function yields exit code 1 with
// the error text as output.
func (p *loopPod) execProbe(ctx context.Context, containerID string, command []string) (output []byte, exitCode int, err error) {
	c := p.findContainer(containerID)
	switch {
	case c == nil:
		return nil, 0, cri.ErrNotFound
	case c.State != cri.ContainerRunning:
		return nil, 0, fmt.Errorf("ExecSync %s: container is %v", containerID, c.State)
	}
	if c.behavior.Probe == nil {
		return nil, 0, nil
	}
	if err := c.behavior.Probe(ctx, p.loop.clock().Sub(c.began), command); err != nil {
		return []byte(err.Error()), 1, nil
	}
	return nil, 0, nil
}
