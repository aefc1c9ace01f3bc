// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import "time"

// adoptedAge is how long before the start of the agent a container must have started to count as started by a previous agent.
// Source: kubeletRestartGracePeriod in pkg/kubelet/prober/prober_manager.go.
const adoptedAge = 10 * time.Second

// State is the state of one probe: its current value, the consecutive results that count towards a threshold, and the time of the
// next probe. It is an immutable value: methods return the next state. Use [NewState].
//
// Source: worker.doProbe in pkg/kubelet/prober/worker.go.
type State struct {
	target     Target // as last passed to UpdateTarget, with defaults in its Spec
	value      Value  // of the newest container instance
	hasValue   bool   // there is a value
	notRunning bool   // value is Failure because the container does not run, not because of a probe
	final      bool   // value is final for this container instance: no further probes
	probable   bool   // the container can be probed now
	// lastResult is the last result, and repeats is how often it occurred in a row. A new container instance does not reset them:
	// two failures before a crash count towards the threshold of the new instance.
	lastResult Outcome
	repeats    int

	earliestProbe time.Time // earliest time of the first probe
	nextTick      time.Time // while probable, the next probe; otherwise any time on the probe's grid of periods
}

// PreviousRun is the information about a container from before the start of this agent process. A State uses it until the probe
// has a value.
type PreviousRun struct {
	AgentStart time.Time // start of this agent process; containers started well before it were started by a previous one
	Outcome    Outcome   // stored by the previous agent; Unknown: none
}

// NewState returns the state of a probe that has no target yet. The argument first is the earliest time of the first probe.
// Further probes follow after each period.
func NewState(first time.Time) State {
	return State{lastResult: Success, earliestProbe: first, nextTick: first}
}

// Value returns the current value of the probe. ok is false if there is none.
func (s State) Value() (value Value, ok bool) { return s.value, s.hasValue }

// NextProbe returns the time of the next probe. It returns the zero time if the container cannot be probed. In that case,
// only UpdateTarget can set a time.
func (s State) NextProbe() time.Time {
	if !s.probable {
		return time.Time{}
	}
	return s.nextTick
}

// UpdateTarget returns the state with a new target, for example after the start of a new container instance. The caller must set
// Target.Started, which is always true without a startup probe. past has information from before this agent process.
func (s State) UpdateTarget(target Target, past PreviousRun, now time.Time) State {
	target.Spec = target.Spec.withDefaults()
	if target.StartedAt.IsZero() && target.Running {
		target.StartedAt = now
		if s.target.Running && s.target.ContainerID == target.ContainerID {
			target.StartedAt = s.target.StartedAt
		}
	}
	wasProbable := s.probable && target.ContainerID == s.value.ContainerID && target.Spec == s.target.Spec
	s.target = target
	if target.ContainerID != "" {
		s = s.applyTarget(past)
	}
	if s.probable = s.canProbe(); s.probable && !wasProbable {
		s.nextTick = s.firstProbeTime(now)
	}
	return s
}

// applyTarget returns the state with the value that follows from its target and from past, without a probe.
func (s State) applyTarget(past PreviousRun) State {
	t := &s.target
	if t.ContainerID != s.value.ContainerID || s.notRunning && t.Running {
		s.value.ContainerID = t.ContainerID // a new instance has its initial value
		s.value.Outcome, s.hasValue = t.initialOutcome(past)
		s.notRunning, s.final = false, past.Outcome != Unknown && t.Kind.isConclusive(past.Outcome)
	}
	switch {
	case s.final:
	case !t.Running:
		s.value.Outcome, s.hasValue, s.notRunning = Failure, true, true
	case t.Terminating && t.Kind != Readiness:
		s.value.Outcome, s.hasValue = Success, true // a failure has no consequence any more
	} // a failure of a terminating container has no consequence
	return s
}

// initialOutcome returns the outcome of a probe before its first run, given past, from before this agent process. ok is false
// without one.
func (t *Target) initialOutcome(past PreviousRun) (outcome Outcome, ok bool) {
	adopted := !t.StartedAt.IsZero() && t.StartedAt.Before(past.AgentStart.Add(-adoptedAge))
	switch {
	case past.Outcome != Unknown:
		return past.Outcome, true
	case adopted && t.Kind == Startup && t.Started:
		return Success, true
	case adopted: // reporting it as not ready could be wrong
		return Unknown, false
	case t.Kind == Readiness:
		return Failure, true
	case t.Kind == Liveness:
		return Success, true
	default:
		return Unknown, true
	}
}

// isConclusive reports whether a probe of this kind stops after this outcome, until the next container instance.
func (k Kind) isConclusive(outcome Outcome) bool {
	return k == Startup || k == Liveness && outcome == Failure
}

// canProbe reports whether the container can be probed now.
func (s State) canProbe() bool {
	t := &s.target
	// Startup probes run before the container has started, all others afterwards. In a deleted pod, only readiness probes run.
	return t.ContainerID != "" && t.Running && !s.final &&
		(t.Kind == Readiness || !t.Terminating) &&
		t.Started == (t.Kind != Startup)
}

// firstProbeTime returns the time of the first probe of a container that can be probed from now on.
func (s State) firstProbeTime(now time.Time) time.Time {
	at := s.earliestProbeTime(now)
	if s.target.Kind == Readiness {
		return at // at once: clients wait until the container is ready
	}
	// An additional early failure would count towards the threshold.
	return maxTime(nextTickAfter(s.nextTick, at, s.target.Spec.Period), s.earliestProbe)
}

// earliestProbeTime returns the earliest time, now or later, at which the initial delay permits a probe.
func (s State) earliestProbeTime(now time.Time) time.Time {
	delay := s.target.Spec.InitialDelay
	// A wrong clock may put the start into the future: wait at most for the delay.
	return maxTime(now.Add(max(0, min(delay, s.target.StartedAt.Add(delay).Sub(now)))), s.earliestProbe)
}

// TriggerProbe returns the state in which the next probe is due now. Further probes follow after each period. If the
// container cannot be probed, it returns s unchanged.
func (s State) TriggerProbe(now time.Time) State {
	if s.probable {
		s.nextTick = s.earliestProbeTime(now)
	}
	return s
}

// StartProbe returns the state after a probe was started now. The next probe is due one period later. Missed probes are not
// run later.
func (s State) StartProbe(now time.Time) State {
	s.nextTick = nextTickAfter(s.nextTick, now.Add(1), s.target.Spec.Period)
	return s
}

// AddResult returns the state after a probe of the current container instance has returned an outcome. Warning counts as
// Success, and Unknown as Failure. If the container can no longer be probed, it returns s unchanged.
func (s State) AddResult(outcome Outcome) State {
	if !s.probable {
		return s
	}
	threshold := s.target.Spec.SuccessThreshold
	switch outcome {
	case Success, Warning:
		outcome = Success
	default:
		outcome, threshold = Failure, s.target.Spec.FailureThreshold
	}
	if outcome != s.lastResult {
		s.lastResult, s.repeats = outcome, 0
	}
	if s.repeats++; s.repeats < threshold {
		return s
	}
	s.value.Outcome, s.hasValue = outcome, true
	if s.target.Kind.isConclusive(outcome) {
		s.final, s.probable, s.repeats = true, false, 0
	}
	return s
}

// nextTickAfter returns the first tick that is not before earliest. The ticks are the times that differ from tick by a
// multiple of period.
func nextTickAfter(tick, earliest time.Time, period time.Duration) time.Time {
	behind := earliest.Sub(tick)
	n := behind / period // rounded towards zero: up for a tick in the future
	if behind%period > 0 {
		n++
	}
	return tick.Add(n * period)
}

// maxTime returns the later time of a and b.
func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
