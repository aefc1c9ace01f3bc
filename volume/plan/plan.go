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
	Parallel int           // how many steps may be under way; at least one
	Slow     time.Duration // a step that is under way for longer does not count
}

// Action is a step to begin now.
type Action struct {
	Volume *Volume
	Step   Step
}

// Plan returns the steps that are due and may begin, and when something is due that is not yet; the zero time is never.
// Teardowns come first, so that what is given up is free before it is taken again, then volumes that pods wait for, then
// those that are brought up to date. Steps that end are a reason to ask again.
func Plan(s *State, now time.Time) (actions []Action, wake time.Time) {
	due := false
	for _, v := range s.Volumes {
		switch step, at := v.next(); {
		case step == None:
		case at.After(now):
			wake = sleep.Earlier(wake, at)
		default:
			due = true
		}
	}
	if !due {
		return nil, wake
	}
	free, freed := s.free(now)
	for _, kind := range [...]Step{TearDown, SetUp, Remount} {
		for _, v := range s.Volumes {
			step, at := v.next()
			switch {
			case step != kind || at.After(now):
			case free > 0:
				free--
				actions = append(actions, Action{v, step})
				freed = sleep.Earlier(freed, now.Add(s.Slow)) // when the first of those that keep others waiting stops to count
			default:
				wake = sleep.Earlier(wake, freed)
			}
		}
	}
	return actions, wake
}

// free returns how many steps may begin, and when the first of those that keep others waiting stops to count.
func (s *State) free(now time.Time) (n int, freed time.Time) {
	n = max(s.Parallel, 1)
	for _, v := range s.Volumes {
		if v.Step == None {
			continue
		}
		if slow := v.Since.Add(s.Slow); slow.After(now) {
			n--
			freed = sleep.Earlier(freed, slow)
		}
	}
	return n, freed
}
