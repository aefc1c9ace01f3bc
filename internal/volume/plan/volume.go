// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"
)

// Desired is what is wanted of a volume.
type Desired uint8

// What can be wanted of a volume.
const (
	Unknown   Desired = iota // nobody has said so far: the volume of an earlier agent is left alone
	Mounted                  // the pod is to have it
	Unmounted                // nothing of it is to be left on the node
)

// Volume is one volume of one pod.
type Volume struct {
	Pod, Name string // UID of the pod, and name in it

	Desired   Desired
	Stale     bool      // what it is made of may have changed
	RefreshAt time.Time // when it is brought up to date though nobody said that it is stale; zero: never
	Device    *Device   // that it shares with others; nil: none

	Progress
}

// Begin notes that a step has begun.
func (v *Volume) Begin(s Step, now time.Time) {
	v.Progress.Begin(s, now)
	if !s.removes() {
		v.Stale = false // what changes from now on is for the next one
	}
}

// End records the result of the step under way: nil is success.
func (v *Volume) End(f *Failure, now time.Time) {
	s := v.Step
	v.Progress.End(f, now)
	switch {
	case v.Phase == Absent && s == TearDown:
		v.Stale, v.RefreshAt = false, time.Time{}
	case f != nil && (s == Remount || v.Phase == Ready):
		v.Stale = true
	}
}

// GiveUp fails the step under way, because its plugin call does not return.
func (v *Volume) GiveUp(f Failure, now time.Time) {
	s := v.Step
	v.Progress.GiveUp(f, now)
	v.Stale = v.Stale || s == Remount
}

// next returns the step that comes next and when; None: there is none, or something else has to come first.
func (v *Volume) next() (s Step, at time.Time) {
	switch {
	case v.Desired == Unmounted && v.canRemove():
		s = TearDown
	case v.Desired != Mounted || !v.canSetUp():
		return None, at
	case v.Phase != Ready:
		s = SetUp
	case v.Stale:
		s = Remount
	case !v.RefreshAt.IsZero():
		s, at = Remount, v.RefreshAt
	}
	if v.Device != nil && !v.Device.admits(s) {
		return None, at
	}
	return s, v.after(s, at)
}
