// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"
)

// Device is the planning state of a device that volumes of several pods share, such as a mounted PV. It is staged before its
// first volume is set up, and unstaged after its last volume is torn down. One operation runs at a time: stage, unstage, one
// set-up or update of a volume, or any number of teardowns (pkg/volume/util/nestedpendingoperations).
type Device struct {
	Name string
	Progress

	// Computed from the volumes of the State by each Plan.
	stageFor  *Volume // first desired volume; nil: none
	users     int     // volumes that are desired, or that are or may be set up
	setUps    int     // running set-ups and updates
	tearDowns int     // running teardowns
}

// countUsers counts, for each device of s, the volumes that use the device and the running steps of these volumes. It
// stores the counts in the device.
func (s *State) countUsers() {
	for _, d := range s.Devices {
		d.stageFor, d.users, d.setUps, d.tearDowns = nil, 0, 0, 0
	}
	for _, v := range s.Volumes {
		if d := v.Device; d != nil {
			d.countVolume(v)
		}
	}
}

// countVolume counts vol as a user of its device if it must be mounted or may be on the node, and its running step.
func (d *Device) countVolume(vol *Volume) {
	if vol.Desired == Mounted && d.stageFor == nil {
		d.stageFor = vol
	}
	if vol.Desired == Mounted || vol.Phase != Absent || vol.Step != None || vol.hasHungCall() {
		d.users++
	}
	d.countStep(vol.Step)
}

// countStep counts a running step of a volume of d, because a set-up excludes all other steps of the device.
func (d *Device) countStep(step Step) {
	switch step {
	case SetUp, Remount:
		d.setUps++
	case TearDown:
		d.tearDowns++
	}
}

// canStart reports whether this step of a volume may start. A set-up needs a staged device without other steps. Teardowns
// may run in parallel.
func (d *Device) canStart(step Step) bool {
	switch step {
	case SetUp, Remount:
		return d.Phase == Ready && d.Step == None && d.setUps == 0 && d.tearDowns == 0
	case TearDown:
		return d.Step == None && d.setUps == 0
	default:
		return true
	}
}

// nextStep returns the next step that the device needs: Stage, Unstage, or None if no step is needed or possible. at is the
// earliest start of this step.
func (d *Device) nextStep() (step Step, at time.Time) {
	switch {
	case d.Step != None || d.setUps > 0 || d.tearDowns > 0:
		return None, at
	case d.users == 0 && d.canRemove():
		step = Unstage
	case d.stageFor != nil && d.Phase != Ready && d.canSetUp():
		step = Stage
	}
	return step, d.earliestStart(step, at)
}
