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

	Failed    Step      // the step that failed last, None after one that succeeded
	Failures  int       // how often, in a row
	away      bool      // because nobody could be asked
	NotBefore time.Time // when that step is tried again
}

// Policy is how long a step that has failed is not tried again (pkg/util/goroutinemap/exponentialbackoff).
func Policy() backoff.Policy {
	return backoff.Policy{First: 500 * time.Millisecond, Max: 2*time.Minute + 2*time.Second}
}

// awayPolicy is the same where nobody could be asked, such as an API server that is away: when that is back, pods wait for nothing but this.
// What is at fault itself, or not there, gets the whole policy.
func awayPolicy() backoff.Policy {
	return backoff.Policy{First: 500 * time.Millisecond, Max: 15 * time.Second}
}

// isAway reports whether an error says that nobody could be asked, as those of package apiobjects do.
func isAway(err error) bool {
	u, ok := errors.AsType[interface {
		error
		Unanswered() bool
	}](err)
	return ok && u.Unanswered()
}

// Final is an error of a step after which nothing is left on the node that the step has made.
type Final struct {
	Err error
}

// Error returns the text of the cause.
func (f *Final) Error() string { return f.Err.Error() }

// Unwrap returns the cause.
func (f *Final) Unwrap() error { return f.Err }

// Outdated is an error of a set-up that has found a volume which an earlier agent made, and which can be used as it is, but was not
// brought up to date. That is tried again, while containers use it.
type Outdated struct {
	Err error
}

// Error returns the text of the cause.
func (o *Outdated) Error() string { return o.Err.Error() }

// Unwrap returns the cause.
func (o *Outdated) Unwrap() error { return o.Err }

// ErrStuck is why what was removed is not known to be.
var ErrStuck = errors.New("a call has not returned")

// Begin notes that a step has begun.
func (p *Progress) Begin(s Step, now time.Time) {
	p.Step, p.Since, p.again = s, now, false
	if s != Remount {
		p.Phase = Uncertain
	}
}

// End notes what has come of the step under way: nil is success.
func (p *Progress) End(err error, now time.Time) {
	s := p.Step
	p.Step, p.Since = None, time.Time{}
	if err == nil && s.removes() && (p.stuck() || p.again) {
		err = ErrStuck // what it goes on to make has to be removed, too
	}
	if err != nil {
		p.fail(s, err, now)
		return
	}
	p.Failed, p.Failures, p.NotBefore = None, 0, time.Time{}
	p.Recovered = false
	p.Phase = Ready
	if s.removes() {
		p.Phase = Absent
	}
}

func (p *Progress) fail(s Step, err error, now time.Time) {
	var outdated *Outdated
	if s == SetUp && p.Recovered && !p.stuck() && errors.As(err, &outdated) {
		p.Phase, s = Ready, Remount
	}
	if away := isAway(err); p.Failed != s || p.away != away {
		p.Failed, p.Failures, p.away = s, 0, away
	}
	p.Failures++
	policy := Policy()
	if p.away {
		policy = awayPolicy()
	}
	p.NotBefore = now.Add(policy.After(p.Failures))
	var final *Final
	if (s == SetUp || s == Stage) && !p.Recovered && !p.stuck() && errors.As(err, &final) {
		p.Phase = Absent
	}
}

// GiveUp ends a step whose call does not return. It is not known what the call does from now on, until Returned is called.
func (p *Progress) GiveUp(err error, now time.Time) {
	if p.Step.removes() {
		p.StuckRemoving = true
	} else {
		p.StuckMaking = true
	}
	p.End(err, now)
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

// stuck reports whether a call was given up that has not returned.
func (p *Progress) stuck() bool { return p.StuckMaking || p.StuckRemoving }

// removable reports whether what there is can be removed.
func (p *Progress) removable() bool { return p.Phase != Absent && p.Step == None && !p.StuckRemoving }

// makable reports whether it can be made, or brought up to date.
func (p *Progress) makable() bool { return p.Step == None && !p.stuck() }

// Retry lets a step that has failed be tried again at once, as what it failed of may be different now.
func (p *Progress) Retry() { p.NotBefore = time.Time{} }

// after returns when a step may begin: not before its back-off is over.
func (p *Progress) after(s Step, at time.Time) time.Time {
	if p.Failed == s && p.NotBefore.After(at) {
		return p.NotBefore
	}
	return at
}
