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
	Unknown   Desired = iota // no decision yet: the volume of a previous agent process stays unchanged
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

// Start records that the step has started. It clears v.Stale, because the step uses the current objects. A teardown keeps
// v.Stale.
func (v *Volume) Start(step Step, now time.Time) {
	v.Progress.Start(step, now)
	if !step.isRemoval() {
		v.Stale = false // a later change needs another update
	}
}

// Complete records that the running step has completed. A nil failure is a success. After a failed update, the volume is
// marked as stale, so that the update is repeated.
func (v *Volume) Complete(failure *Failure, now time.Time) {
	s := v.Step
	v.Progress.Complete(failure, now)
	switch {
	case v.Phase == Absent && s == TearDown:
		v.Stale, v.RefreshAt = false, time.Time{}
	case failure != nil && (s == Remount || v.Phase == Ready):
		v.Stale = true
	}
}

// GiveUp records that the running step has failed because its plugin call does not return.
func (v *Volume) GiveUp(failure Failure, now time.Time) {
	s := v.Step
	v.Progress.GiveUp(failure, now)
	v.Stale = v.Stale || s == Remount
}

// nextStep returns the next step of the volume, or None, and the earliest time for its start.
func (v *Volume) nextStep() (step Step, at time.Time) {
	switch {
	case v.Desired == Unmounted && v.canRemove():
		step = TearDown
	case v.Desired != Mounted || !v.canSetUp():
		return None, at
	case v.Phase != Ready:
		step = SetUp
	case v.Stale:
		step = Remount
	case !v.RefreshAt.IsZero():
		step, at = Remount, v.RefreshAt
	}
	if v.Device != nil && !v.Device.canStart(step) {
		return None, at
	}
	return step, v.earliestStart(step, at)
}
