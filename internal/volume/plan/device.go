// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"
)

// Device is what volumes of several pods share. It is staged before the first of them is set up, and unstaged when the last is torn
// down. There is one operation on a device at a time: to stage it, to unstage it, to set up or update one volume, or to tear down any
// number of them (pkg/volume/util/nestedpendingoperations).
type Device struct {
	Name string
	Progress

	// What the volumes of the State say, at each Plan.
	wanted  *Volume // the first that is to be set up; nil: none
	users   int     // volumes that are, or may be, set up, or are wanted
	setUps  int     // under way, updates too
	removes int     // teardowns under way
}

// count notes what volumes say of the devices that they share.
func (s *State) count() {
	for _, d := range s.Devices {
		d.wanted, d.users, d.setUps, d.removes = nil, 0, 0, 0
	}
	for _, v := range s.Volumes {
		if d := v.Device; d != nil {
			d.count(v)
		}
	}
}

func (d *Device) count(v *Volume) {
	if v.Desired == Mounted && d.wanted == nil {
		d.wanted = v
	}
	if v.Desired == Mounted || v.Phase != Absent || v.Step != None || v.hasHungCall() {
		d.users++
	}
	d.begin(v.Step)
}

// begin counts a step of one of its volumes.
func (d *Device) begin(s Step) {
	switch s {
	case SetUp, Remount:
		d.setUps++
	case TearDown:
		d.removes++
	}
}

// admits reports whether a step of one of its volumes can begin.
func (d *Device) admits(s Step) bool {
	switch s {
	case SetUp, Remount:
		return d.Phase == Ready && d.Step == None && d.setUps == 0 && d.removes == 0
	case TearDown:
		return d.Step == None && d.setUps == 0
	default:
		return true
	}
}

// next returns the step of the device itself that comes next and when; None: there is none.
func (d *Device) next() (s Step, at time.Time) {
	switch {
	case d.Step != None || d.setUps > 0 || d.removes > 0:
		return None, at
	case d.users == 0 && d.canRemove():
		s = Unstage
	case d.wanted != nil && d.Phase != Ready && d.canSetUp():
		s = Stage
	}
	return s, d.after(s, at)
}
