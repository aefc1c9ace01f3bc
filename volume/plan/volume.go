// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"time"

	"github.com/seed81659283/nodeagent/internal/backoff"
)

// Desired is what is wanted of a volume.
type Desired uint8

// What can be wanted of a volume.
const (
	Unknown   Desired = iota // nobody has said so far: the volume of an earlier agent is left alone
	Mounted                  // the pod is to have it
	Unmounted                // nothing of it is to be left on the node
)

// Phase is how far a volume is.
type Phase uint8

// The phases of a volume.
const (
	Absent    Phase = iota // nothing of it is on the node
	Uncertain              // there may be something: a step was interrupted or failed, or an earlier agent made the volume
	Ready                  // it is set up
)

// Step is something that is done with a volume.
type Step uint8

// The steps.
const (
	None     Step = iota
	SetUp         // make it
	Remount       // bring one that is set up up to date; one that fails leaves the volume set up
	TearDown      // remove it
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
	default:
		return "none"
	}
}

// Volume is one volume of one pod.
type Volume struct {
	Pod, Name string // UID of the pod, and name in it

	Desired   Desired
	Stale     bool      // what it is made of may have changed
	RefreshAt time.Time // when it is brought up to date though nobody said that it is stale; zero: never

	Phase     Phase
	Recovered bool // an earlier agent made it, and it was not set up since: no error says that nothing is left

	Step  Step      // under way
	Since time.Time // when that began

	Failed    Step      // the step that failed last, None after one that succeeded
	Failures  int       // how often, in a row
	NotBefore time.Time // when that step is tried again
}

// Policy is how long a step that has failed is not tried again (pkg/util/goroutinemap/exponentialbackoff).
func Policy() backoff.Policy {
	return backoff.Policy{First: 500 * time.Millisecond, Max: 2*time.Minute + 2*time.Second}
}

// Final is an error of a step after which nothing is left on the node that the step has made.
type Final struct {
	Err error
}

// Error returns the text of the cause.
func (f *Final) Error() string { return f.Err.Error() }

// Unwrap returns the cause.
func (f *Final) Unwrap() error { return f.Err }

// Begin notes that a step has begun.
func (v *Volume) Begin(s Step, now time.Time) {
	v.Step, v.Since = s, now
	switch s {
	case SetUp:
		v.Phase, v.Stale = Uncertain, false
	case Remount:
		v.Stale = false // what changes from now on is for the next one
	case TearDown:
		v.Phase = Uncertain
	}
}

// End notes what has come of the step under way: nil is success.
func (v *Volume) End(err error, now time.Time) {
	s := v.Step
	v.Step, v.Since = None, time.Time{}
	if err != nil {
		v.fail(s, err, now)
		return
	}
	v.Failed, v.Failures, v.NotBefore = None, 0, time.Time{}
	switch s {
	case SetUp, Remount:
		v.Phase, v.Recovered = Ready, false
	case TearDown:
		v.Phase, v.Recovered, v.Stale, v.RefreshAt = Absent, false, false, time.Time{}
	}
}

func (v *Volume) fail(s Step, err error, now time.Time) {
	if v.Failed != s {
		v.Failed, v.Failures = s, 0
	}
	v.Failures++
	v.NotBefore = now.Add(Policy().After(v.Failures))
	if s == Remount {
		v.Stale = true
		return
	}
	var final *Final
	if s == SetUp && !v.Recovered && errors.As(err, &final) {
		v.Phase = Absent
	}
}

// Retry lets a step that has failed be tried again at once, as what it failed of may be different now.
func (v *Volume) Retry() { v.NotBefore = time.Time{} }

// next returns the step that comes next and when; None: there is none.
func (v *Volume) next() (s Step, at time.Time) {
	switch {
	case v.Step != None:
		return None, at
	case v.Desired == Unmounted && v.Phase != Absent:
		s = TearDown
	case v.Desired == Mounted && v.Phase != Ready:
		s = SetUp
	case v.Desired == Mounted && v.Stale:
		s = Remount
	case v.Desired == Mounted && !v.RefreshAt.IsZero():
		s, at = Remount, v.RefreshAt
	}
	if v.Failed == s && v.NotBefore.After(at) {
		at = v.NotBefore
	}
	return s, at
}
