// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"
)

// Desired is the desired state of a volume.
type Desired uint8

// Desired states of a volume.
const (
	Unknown   Desired = iota // not decided yet: the volume of a previous agent process stays unchanged
	Mounted                  // the volume must be set up
	Unmounted                // the volume must be removed from the node
)

// Volume is the planning state of one volume of one pod.
type Volume struct {
	Pod, Name string // UID of the pod, and name in pod.spec.volumes

	Desired   Desired
	Stale     bool      // an object that the volume shows may have changed
	RefreshAt time.Time // time of the next periodic update; zero: none
	Device    *Device   // device that volumes of several pods share; nil: none

	Progress
}

// Start records that step s has started.
func (v *Volume) Start(s Step, now time.Time) {
	v.Progress.Start(s, now)
	if !s.isRemoval() {
		v.Stale = false // a later change needs another update
	}
}

// Complete records the result of the running step; a nil f is success.
func (v *Volume) Complete(f *Failure, now time.Time) {
	s := v.Step
	v.Progress.Complete(f, now)
	switch {
	case v.Phase == Absent && s == TearDown:
		v.Stale, v.RefreshAt = false, time.Time{}
	case f != nil && (s == Remount || v.Phase == Ready):
		v.Stale = true
	}
}

// GiveUp fails the running step with f, because its plugin call does not return.
func (v *Volume) GiveUp(f Failure, now time.Time) {
	s := v.Step
	v.Progress.GiveUp(f, now)
	v.Stale = v.Stale || s == Remount
}

// nextStep returns the next step and its earliest start. s is None if no step is needed, or another step must complete first.
func (v *Volume) nextStep() (s Step, at time.Time) {
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
	if v.Device != nil && !v.Device.canStart(s) {
		return None, at
	}
	return s, v.earliestStart(s, at)
}
