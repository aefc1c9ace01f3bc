// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	"github.com/seed81659283/nodeagent/internal/sleep"
)

// State is the input of [Plan]: all volumes and devices of a node.
type State struct {
	Volumes  []*Volume     // of all pods, in the order in which steps of the same kind start
	Devices  []*Device     // all devices with a recorded volume
	Parallel int           // maximum number of concurrent steps; at least one
	Slow     time.Duration // a step that runs longer does not count in Parallel
}

// Action is a step that must start now.
type Action struct {
	Volume *Volume // for Stage a volume that needs the device; nil for Unstage
	Device *Device // for Stage and Unstage; nil for other steps
	Step   Step
}

// Start records that the step a.Step has started. It records the start in the progress of a.Device, or of a.Volume if there
// is no device.
func (a Action) Start(now time.Time) {
	if a.Device != nil {
		a.Device.Start(a.Step, now)
	} else {
		a.Volume.Start(a.Step, now)
	}
}

// Plan returns the steps of volumes and devices to start now: teardowns, which free resources, then set-ups, for which pods
// wait, then updates. The caller must start each with [Action.Start], and call Plan again at the time wake, unless it is
// zero, and after each completed step.
func Plan(state *State, now time.Time) (actions []Action, wake time.Time) {
	state.countUsers()
	wake, due := state.findDue(now)
	if !due {
		return nil, wake
	}
	b := &slots{slow: state.Slow, now: now}
	b.free, b.nextFree = state.freeSlots(now)
	for _, kind := range [...]Step{TearDown, Unstage, Stage, SetUp, Remount} {
		if kind == Unstage || kind == Stage {
			for _, d := range state.Devices {
				if step, at := d.nextStep(); step == kind && !at.After(now) && b.takeSlot() {
					b.actions = append(b.actions, Action{Device: d, Volume: d.stageFor, Step: step})
				}
			}
			continue
		}
		for _, v := range state.Volumes {
			if step, at := v.nextStep(); step == kind && !at.After(now) && b.takeSlot() {
				b.actions = append(b.actions, Action{Volume: v, Step: step})
				if v.Device != nil {
					v.Device.countStep(step) // later steps of this Plan must respect it, although it is not started yet
				}
			}
		}
	}
	return b.actions, sleep.Earlier(wake, b.wake)
}

// findDue reports whether a step of any volume or device is due at now. wake is the time of the earliest later step; zero
// means never.
func (s *State) findDue(now time.Time) (wake time.Time, due bool) {
	for _, v := range s.Volumes {
		switch step, at := v.nextStep(); {
		case step == None:
		case at.After(now):
			wake = sleep.Earlier(wake, at)
		default:
			due = true
		}
	}
	for _, d := range s.Devices {
		switch step, at := d.nextStep(); {
		case step == None:
		case at.After(now):
			wake = sleep.Earlier(wake, at)
		default:
			due = true
		}
	}
	return wake, due
}

// slots is the state of one call of Plan: the steps that it starts, and how many more may start.
type slots struct {
	actions  []Action
	slow     time.Duration
	now      time.Time
	free     int
	nextFree time.Time // when the next running step becomes slow and stops counting
	wake     time.Time // when a step that exceeds the limit may start
}

// takeSlot reserves a slot for a step that starts now, or sets b.wake to the time when a slot becomes free.
func (b *slots) takeSlot() bool {
	if b.free <= 0 {
		b.wake = sleep.Earlier(b.wake, b.nextFree)
		return false
	}
	b.free--
	b.nextFree = sleep.Earlier(b.nextFree, b.now.Add(b.slow))
	return true
}

// freeSlots returns how many more steps may start, and when the next running step stops counting or zero.
func (s *State) freeSlots(now time.Time) (n int, freed time.Time) {
	n = max(s.Parallel, 1)
	count := func(p *Progress) {
		if p.Step == None {
			return
		}
		// A slow step is not counted.
		if slow := p.Since.Add(s.Slow); slow.After(now) {
			n--
			freed = sleep.Earlier(freed, slow)
		}
	}
	for _, v := range s.Volumes {
		count(&v.Progress)
	}
	for _, d := range s.Devices {
		count(&d.Progress)
	}
	return n, freed
}
