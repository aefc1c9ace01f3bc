// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import "time"

// adoptedAge is how long before its agent a container has to have started to be one that an earlier agent started.
// Source: kubeletRestartGracePeriod in pkg/kubelet/prober/prober_manager.go.
const adoptedAge = 10 * time.Second

// State is a probe as it stands: what its container has been found to be, what counts towards a change, and when to
// probe next. It is a value, and its methods are pure: they return the state that follows. Begin with [NewState].
//
// Source: worker.doProbe in pkg/kubelet/prober/worker.go.
type State struct {
	target     Target // as last observed, with the defaults of its Spec
	value      Value  // of the newest container
	hasValue   bool   // there is a value
	notRunning bool   // value says that the container does not run, which no probe has found
	final      bool   // value is final for this container: it is not probed any more
	probable   bool   // the container can be probed
	// last and run are the result that came last and how often it came in a row. A new container does not reset
	// them: two failures before a crash count towards the threshold of what comes after it.
	lastResult Outcome
	repeats    int

	earliestProbe time.Time // no probe before it
	nextTick      time.Time // while open the next probe, else any time that is a number of periods away from a probe
}

// Past is what is known of a container that an agent has not met before.
type PreviousRun struct {
	AgentStart time.Time // what started well before it was started by an earlier agent
	Outcome    Outcome   // what the earlier agent had found; Unknown: nothing
}

// NewState returns the state of a probe that can be made for the first time at a given time, and every period from
// there.
func NewState(first time.Time) State {
	return State{lastResult: Success, earliestProbe: first, nextTick: first}
}

// Value returns what the container has been found to be, and whether there is anything to say.
func (s State) Value() (v Value, ok bool) { return s.value, s.hasValue }

// Due returns the time of the next probe, or zero if there is none until something changes.
func (s State) NextProbe() time.Time {
	if !s.probable {
		return time.Time{}
	}
	return s.nextTick
}

// Observe returns the state after a look at the container. It knows one probe alone: Target.Started is taken at its word,
// also where the container has no startup probe.
func (s State) UpdateTarget(t Target, past PreviousRun, now time.Time) State {
	t.Spec = t.Spec.withDefaults()
	if t.StartedAt.IsZero() && t.Running {
		t.StartedAt = now
		if s.target.Running && s.target.ContainerID == t.ContainerID {
			t.StartedAt = s.target.StartedAt
		}
	}
	wasOpen := s.probable && t.ContainerID == s.value.ContainerID && t.Spec == s.target.Spec
	s.target = t
	if t.ContainerID != "" {
		s = s.applyTarget(past)
	}
	if s.probable = s.canProbe(); s.probable && !wasOpen {
		s.nextTick = s.firstProbeTime(now)
	}
	return s
}

// judge returns the state with what can be said of the container without a probe.
func (s State) applyTarget(past PreviousRun) State {
	t := &s.target
	if t.ContainerID != s.value.ContainerID || s.notRunning && t.Running {
		s.value.ContainerID = t.ContainerID
		s.value.Outcome, s.hasValue = t.initialOutcome(past)
		s.notRunning, s.final = false, past.Outcome != Unknown && t.Kind.isConclusive(past.Outcome)
	}
	switch {
	case s.final:
	case !t.Running:
		s.value.Outcome, s.hasValue, s.notRunning = Failure, true, true
	case t.Terminating && t.Kind != Readiness:
		s.value.Outcome, s.hasValue = Success, true // a failure has no consequence any more
	}
	return s
}

// seed returns what is said of a container before its first probe, and whether anything is.
func (t *Target) initialOutcome(past PreviousRun) (o Outcome, ok bool) {
	adopted := !t.StartedAt.IsZero() && t.StartedAt.Before(past.AgentStart.Add(-adoptedAge))
	switch {
	case past.Outcome != Unknown:
		return past.Outcome, true
	case adopted && t.Kind == Startup && t.Started:
		return Success, true
	case adopted: // saying that it is not ready could be a lie
		return Unknown, false
	case t.Kind == Readiness:
		return Failure, true
	case t.Kind == Liveness:
		return Success, true
	default:
		return Unknown, true
	}
}

// settles reports whether a container is not probed any more once it has been found to be o.
func (k Kind) isConclusive(o Outcome) bool { return k == Startup || k == Liveness && o == Failure }

// canProbe reports whether the container can be probed.
func (s State) canProbe() bool {
	t := &s.target
	return t.ContainerID != "" && t.Running && !s.final &&
		(t.Kind == Readiness || !t.Terminating) &&
		t.Started == (t.Kind != Startup)
}

// opening returns the time of the first probe of a container that can be probed from now on. Readiness is probed
// at once, as somebody is waiting for it. For the others an early first probe would be an early failure that counts:
// they stay on the grid.
func (s State) firstProbeTime(now time.Time) time.Time {
	at := s.earliestProbeTime(now)
	if s.target.Kind == Readiness {
		return at
	}
	return maxTime(nextTickAfter(s.nextTick, at, s.target.Spec.Period), s.earliestProbe)
}

// earliest returns the first time from now on at which the container may be probed. A start that lies in the future,
// by a clock that was wrong, makes no probe wait for longer than the initial delay.
func (s State) earliestProbeTime(now time.Time) time.Time {
	delay := s.target.Spec.InitialDelay
	return maxTime(now.Add(max(0, min(delay, s.target.StartedAt.Add(delay).Sub(now)))), s.earliestProbe)
}

// trigger returns the state with a probe due now instead of at the next tick; the ticks go on from here. Nothing
// changes while the container cannot be probed.
func (s State) triggerProbe(now time.Time) State {
	if s.probable {
		s.nextTick = s.earliestProbeTime(now)
	}
	return s
}

// Begin returns the state after the start of a probe. Ticks that were missed are one.
func (s State) StartProbe(now time.Time) State {
	s.nextTick = nextTickAfter(s.nextTick, now.Add(1), s.target.Spec.Period)
	return s
}

// Answer returns the state after a result of the container that was observed last. A warning is a success and
// unknown a failure. Nothing changes when the container cannot be probed any more.
func (s State) AddResult(o Outcome) State {
	if !s.probable {
		return s
	}
	threshold := s.target.Spec.SuccessThreshold
	switch o {
	case Success, Warning:
		o = Success
	default:
		o, threshold = Failure, s.target.Spec.FailureThreshold
	}
	if o != s.lastResult {
		s.lastResult, s.repeats = o, 0
	}
	if s.repeats++; s.repeats < threshold {
		return s
	}
	s.value.Outcome, s.hasValue = o, true
	if s.target.Kind.isConclusive(o) {
		s.final, s.probable, s.repeats = true, false, 0
	}
	return s
}

// onGrid returns the first time not before t that is a whole number of periods away from a tick.
func nextTickAfter(tick, t time.Time, period time.Duration) time.Time {
	behind := t.Sub(tick)
	n := behind / period // rounded towards zero: up for a tick in the future
	if behind%period > 0 {
		n++
	}
	return tick.Add(n * period)
}

// later returns the later of two times.
func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
