// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"time"

	"github.com/seed81659283/nodeagent/internal/backoff"
)

// Phase is how far a volume or a device is.
type Phase uint8

// The phases of a volume or a device.
const (
	Absent    Phase = iota // nothing of it is on the node
	Uncertain              // there may be something: a step was interrupted or failed, or an earlier agent made it
	Ready                  // it is set up, or staged
)

// Step is something that is done with a volume or a device.
type Step uint8

// The steps.
const (
	None     Step = iota
	SetUp         // make a volume
	Remount       // bring one that is set up up to date; one that fails leaves the volume set up
	TearDown      // remove it
	Stage         // make a device ready for its volumes
	Unstage       // undo that
)

// String names a step in the words of an error.
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

// removes reports whether a step leaves nothing.
func (s Step) removes() bool { return s == TearDown || s == Unstage }

// Progress is how far a volume or a device is, and which step it is at.
type Progress struct {
	Phase     Phase
	Recovered bool // an earlier agent made it, and it was not made since: no error says that nothing is left

	Step  Step      // under way
	Since time.Time // when that began

	// StuckMaking and StuckRemoving: a call that makes, or removes it, was given up and has not returned. Meanwhile nothing is made,
	// nothing is known to be removed, and what makes can be removed, but not what removes.
	StuckMaking, StuckRemoving bool

	again bool // such a call has returned since the step began

	Failed      Step      // the step that failed last, None after one that succeeded
	Failures    int       // how often, in a row
	unavailable bool      // because a server did not answer
	NotBefore   time.Time // when that step is tried again
}

// Policy is how long a step that has failed is not tried again (pkg/util/goroutinemap/exponentialbackoff).
func Policy() backoff.Policy {
	return backoff.Policy{First: 500 * time.Millisecond, Max: 2*time.Minute + 2*time.Second}
}

// unavailablePolicy is the back-off while a server does not answer, such as the API server. Its maximum is only 15 s, because pods wait for
// nothing else once the server is back. All other failures, including not found, use Policy.
func unavailablePolicy() backoff.Policy {
	return backoff.Policy{First: 500 * time.Millisecond, Max: 15 * time.Second}
}

// Failure is the consequence of a step that failed. In the zero value a part of the volume may be on the node.
type Failure struct {
	NothingLeft bool // the step left nothing on the node: no teardown is needed
	Usable      bool // the step found a volume of a previous agent, which is usable but not up to date
	Unavailable bool // a server did not answer, so the cause says nothing about the volume
}

// ErrStuck is why what was removed is not known to be.
var ErrStuck = errors.New("a call has not returned")

// Begin notes that a step has begun.
func (p *Progress) Begin(s Step, now time.Time) {
	p.Step, p.Since, p.again = s, now, false
	if s != Remount {
		p.Phase = Uncertain
	}
}

// End records the result of the step under way: nil is success.
func (p *Progress) End(f *Failure, now time.Time) {
	s := p.Step
	p.Step, p.Since = None, time.Time{}
	if f == nil && s.removes() && (p.hasHungCall() || p.again) {
		f = &Failure{} // see ErrStuck: the results of the hung call have to be removed, too
	}
	if f != nil {
		p.fail(s, *f, now)
		return
	}
	p.Failed, p.Failures, p.NotBefore = None, 0, time.Time{}
	p.Recovered = false
	p.Phase = Ready
	if s.removes() {
		p.Phase = Absent
	}
}

// fail records that step s failed, and when it may be retried.
func (p *Progress) fail(s Step, f Failure, now time.Time) {
	if s == SetUp && p.Recovered && !p.hasHungCall() && f.Usable {
		p.Phase, s = Ready, Remount
	}
	if p.Failed != s || p.unavailable != f.Unavailable {
		p.Failed, p.Failures, p.unavailable = s, 0, f.Unavailable
	}
	p.Failures++
	policy := Policy()
	if p.unavailable {
		policy = unavailablePolicy()
	}
	p.NotBefore = now.Add(policy.After(p.Failures))
	if (s == SetUp || s == Stage) && !p.Recovered && !p.hasHungCall() && f.NothingLeft {
		p.Phase = Absent
	}
}

// GiveUp fails the step under way, because its plugin call does not return. Until Returned is called, the call may still change the node.
func (p *Progress) GiveUp(f Failure, now time.Time) {
	if p.Step.removes() {
		p.StuckRemoving = true
	} else {
		p.StuckMaking = true
	}
	p.End(&f, now)
}

// Returned notes that the call of a step has returned that was given up. What it has done is removed, or made again.
func (p *Progress) Returned(s Step) {
	if s.removes() {
		p.StuckRemoving = false
	} else {
		p.StuckMaking = false
	}
	p.again = true
	p.Retry()
}

// hasHungCall reports whether a call was given up that has not returned.
func (p *Progress) hasHungCall() bool { return p.StuckMaking || p.StuckRemoving }

// canRemove reports whether what there is can be removed.
func (p *Progress) canRemove() bool { return p.Phase != Absent && p.Step == None && !p.StuckRemoving }

// canSetUp reports whether it can be made, or brought up to date.
func (p *Progress) canSetUp() bool { return p.Step == None && !p.hasHungCall() }

// Retry lets a step that has failed be tried again at once, as what it failed of may be different now.
func (p *Progress) Retry() { p.NotBefore = time.Time{} }

// after returns when a step may begin: not before its back-off is over.
func (p *Progress) after(s Step, at time.Time) time.Time {
	if p.Failed == s && p.NotBefore.After(at) {
		return p.NotBefore
	}
	return at
}
