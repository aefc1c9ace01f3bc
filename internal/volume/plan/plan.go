// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	"github.com/seed81659283/nodeagent/internal/sleep"
)

// State is what Plan decides from.
type State struct {
	Volumes  []*Volume     // of all pods, in the order in which steps of the same kind are begun
	Devices  []*Device     // that volumes share, or have shared
	Parallel int           // how many steps may be under way; at least one
	Slow     time.Duration // a step that is under way for longer does not count
}

// Action is a step to begin now.
type Action struct {
	Volume *Volume // also of a Stage: the one that the device is staged for; nil for an Unstage
	Device *Device // of a Stage or an Unstage; nil for other steps
	Step   Step
}

// Begin notes that the step has begun.
func (a Action) Begin(now time.Time) {
	if a.Device != nil {
		a.Device.Begin(a.Step, now)
	} else {
		a.Volume.Begin(a.Step, now)
	}
}

// Plan returns the steps that are due and may begin, and when something is due that is not yet; the zero time is never.
// Teardowns come first, so that what is given up is free before it is taken again, then volumes that pods wait for, then
// those that are brought up to date. Steps that end are a reason to ask again.
func Plan(s *State, now time.Time) (actions []Action, wake time.Time) {
	s.count()
	wake, due := s.due(now)
	if !due {
		return nil, wake
	}
	b := &budget{slow: s.Slow, now: now}
	b.free, b.freed = s.free(now)
	for _, kind := range [...]Step{TearDown, Unstage, Stage, SetUp, Remount} {
		if kind == Unstage || kind == Stage {
			for _, d := range s.Devices {
				if step, at := d.next(); step == kind && !at.After(now) && b.take() {
					b.actions = append(b.actions, Action{Device: d, Volume: d.wanted, Step: step})
				}
			}
			continue
		}
		for _, v := range s.Volumes {
			if step, at := v.next(); step == kind && !at.After(now) && b.take() {
				b.actions = append(b.actions, Action{Volume: v, Step: step})
				if v.Device != nil {
					v.Device.begin(step) // which others have to wait for, though it is still to begin
				}
			}
		}
	}
	return b.actions, sleep.Earlier(wake, b.wake)
}

// due reports whether there is a step that is due, and when the next one is that is not.
func (s *State) due(now time.Time) (wake time.Time, due bool) {
	for _, v := range s.Volumes {
		switch step, at := v.next(); {
		case step == None:
		case at.After(now):
			wake = sleep.Earlier(wake, at)
		default:
			due = true
		}
	}
	for _, d := range s.Devices {
		switch step, at := d.next(); {
		case step == None:
		case at.After(now):
			wake = sleep.Earlier(wake, at)
		default:
			due = true
		}
	}
	return wake, due
}

// budget is how many more steps may begin.
type budget struct {
	actions []Action
	slow    time.Duration
	now     time.Time
	free    int
	freed   time.Time // when the first of the steps that keep others waiting stops to count
	wake    time.Time // when those that wait may begin
}

// take reports whether one more step may begin, and counts it.
func (b *budget) take() bool {
	if b.free <= 0 {
		b.wake = sleep.Earlier(b.wake, b.freed)
		return false
	}
	b.free--
	b.freed = sleep.Earlier(b.freed, b.now.Add(b.slow))
	return true
}

// free returns how many steps may begin, and when the first of those that keep others waiting stops to count.
func (s *State) free(now time.Time) (n int, freed time.Time) {
	n = max(s.Parallel, 1)
	count := func(p *Progress) {
		if p.Step == None {
			return
		}
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
