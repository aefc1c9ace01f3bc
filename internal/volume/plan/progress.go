// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"time"

	"github.com/seed81659283/nodeagent/internal/backoff"
)

// Phase is the current state of a volume or device.
type Phase uint8

// Phases of a volume or device.
const (
	Absent    Phase = iota // nothing of it is on the node
	Uncertain              // a part may be on the node: a step is running or has failed, or a previous agent process created it
	Ready                  // set up, or staged
)

// Step is an operation on a volume or device.
type Step uint8

// Steps of volumes and devices.
const (
	None     Step = iota
	SetUp         // set up a volume
	Remount       // update a volume that is set up; after a failure it is still set up
	TearDown      // tear down a volume
	Stage         // stage a device: prepare it for its volumes
	Unstage       // unstage a device
)

// String returns the step as in the text of an error.
func (s Step) String() string {
	switch s {
	case SetUp:
		return "set up"
	case Remount:
		return "update"
	case TearDown:
		return "tear down"
	case Stage:
		return "stage"
	case Unstage:
		return "unstage"
	default:
		return "none"
	}
}

// isRemoval reports whether s is TearDown or Unstage.
func (s Step) isRemoval() bool { return s == TearDown || s == Unstage }

// Progress has the phase of a volume or device, its running step and its last failure.
type Progress struct {
	Phase     Phase
	Recovered bool // a previous agent process may have created the volume or device: Failure.NothingLeft is ignored

	Step  Step      // running step
	Since time.Time // start of the running step

	// HungSetUp and HungTearDown are true while a plugin call that was given up has not returned. Until then no set-up starts,
	// and a successful teardown must be repeated. While HungTearDown is true, no teardown starts either.
	HungSetUp, HungTearDown bool

	hungReturned bool // a call that was given up has returned since the running step started

	Failed      Step      // last failed step; None after a success
	Failures    int       // consecutive failures of that step
	unavailable bool      // the failures were caused by a server that did not respond
	RetryAt     time.Time // earliest retry of that step
}

// BackoffPolicy returns the delays before the retries of a failed step, from 500 ms to about 2 min. Source:
// pkg/util/goroutinemap/exponentialbackoff.
func BackoffPolicy() backoff.Policy {
	return backoff.Policy{First: 500 * time.Millisecond, Max: 2*time.Minute + 2*time.Second}
}

// unavailablePolicy returns the back-off for a step that failed because a server did not respond.
func unavailablePolicy() backoff.Policy {
	// The longest delay is short, because pods wait for nothing else once the server is back.
	return backoff.Policy{First: 500 * time.Millisecond, Max: 15 * time.Second}
}

// Failure describes the failure of a step. In the zero value, a part of the volume may be on the node.
type Failure struct {
	NothingLeft bool // the step left nothing on the node: no teardown is needed
	Usable      bool // the set-up found a volume of a previous agent process that is usable but not up to date
	Unavailable bool // a server did not respond, so the cause says nothing about the volume
}

// ErrHungCall is the error of a teardown or unstage that has succeeded although an older plugin call has not returned. That call
// may still change the node, so the step must be repeated.
var ErrHungCall = errors.New("a call has not returned")

// Start records that the step has started. The phase becomes Uncertain. An update (Remount) keeps the phase, because the
// volume stays set up.
func (p *Progress) Start(step Step, now time.Time) {
	p.Step, p.Since, p.hungReturned = step, now, false
	if step != Remount {
		p.Phase = Uncertain
	}
}

// Complete records that the running step has succeeded, or failed with failure. After a success the phase becomes Absent for
// a teardown or unstage, and Ready for other steps. A teardown or unstage counts as failed if a given-up plugin call may
// have changed the node meanwhile.
func (p *Progress) Complete(failure *Failure, now time.Time) {
	s := p.Step
	p.Step, p.Since = None, time.Time{}
	if failure == nil && s.isRemoval() && (p.hasHungCall() || p.hungReturned) {
		failure = &Failure{} // see ErrHungCall: the results of the hung call must be removed too
	}
	if failure != nil {
		p.recordFailure(s, *failure, now)
		return
	}
	p.Failed, p.Failures, p.RetryAt = None, 0, time.Time{}
	p.Recovered = false
	p.Phase = Ready
	if s.isRemoval() {
		p.Phase = Absent
	}
}

// recordFailure records the failure of a step and sets the time of the retry.
func (p *Progress) recordFailure(step Step, failure Failure, now time.Time) {
	if step == SetUp && p.Recovered && !p.hasHungCall() && failure.Usable {
		// A usable volume of a previous agent process exists.
		p.Phase, step = Ready, Remount
	}
	if p.Failed != step || p.unavailable != failure.Unavailable {
		p.Failed, p.Failures, p.unavailable = step, 0, failure.Unavailable
	}
	p.Failures++
	policy := BackoffPolicy()
	if p.unavailable {
		policy = unavailablePolicy()
	}
	p.RetryAt = now.Add(policy.After(p.Failures))
	if (step == SetUp || step == Stage) && !p.Recovered && !p.hasHungCall() && failure.NothingLeft {
		p.Phase = Absent
	}
}

// GiveUp records that the running step has failed because its plugin call does not return. The call may still change the
// node until [Progress.HungCallReturned] is called.
func (p *Progress) GiveUp(failure Failure, now time.Time) {
	if p.Step.isRemoval() {
		p.HungTearDown = true
	} else {
		p.HungSetUp = true
	}
	p.Complete(&failure, now)
}

// HungCallReturned records that a plugin call of this step has returned after it was given up. The failed step may be
// retried at once. A running teardown or unstage must be repeated, because the call may have changed the node.
func (p *Progress) HungCallReturned(step Step) {
	if step.isRemoval() {
		p.HungTearDown = false
	} else {
		p.HungSetUp = false
	}
	p.hungReturned = true
	p.Retry()
}

// hasHungCall reports whether a plugin call was given up and has not returned yet.
func (p *Progress) hasHungCall() bool { return p.HungSetUp || p.HungTearDown }

// canRemove reports whether a teardown or unstage may start after its back-off.
func (p *Progress) canRemove() bool { return p.Phase != Absent && p.Step == None && !p.HungTearDown }

// canSetUp reports whether a set-up, update or stage is permitted: no step is running, and no plugin call hangs. It ignores
// the back-off.
func (p *Progress) canSetUp() bool { return p.Step == None && !p.hasHungCall() }

// Retry ends the back-off of the failed step, which may then start at once.
func (p *Progress) Retry() { p.RetryAt = time.Time{} }

// earliestStart returns the earliest time to start the step: the given time, or the end of the back-off of the step if that
// is later.
func (p *Progress) earliestStart(step Step, at time.Time) time.Time {
	if p.Failed == step && p.RetryAt.After(at) {
		return p.RetryAt
	}
	return at
}
