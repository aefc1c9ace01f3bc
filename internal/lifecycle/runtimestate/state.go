// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package runtimestate

import (
	"maps"
	"slices"
	"time"
)

// state is what is known of the network of pods.
type state struct {
	answered time.Time // zero: never
	err      error     // the last answer: why it is not ready
	silent   bool      // the last question was not answered, or not in time: nobody waits for the next answer

	waiting map[string]time.Time // pods by their UIDs, and when they asked last
}

// stale reports whether the answer is to be asked for anew.
func (s *state) stale(now time.Time) bool {
	return s.answered.IsZero() || now.Sub(s.answered) >= freshFor
}

// check returns why a pod is not to be started, and notes that it waits.
func (s *state) check(uid string, now time.Time) error {
	if s.err == nil || now.Sub(s.answered) >= notReadyFor {
		return nil
	}
	if s.waiting == nil {
		s.waiting = map[string]time.Time{}
	}
	s.waiting[uid] = now
	return s.err
}

// answer notes an answer, and returns the pods that have waited for it.
func (s *state) answer(err error, now time.Time) (ready []string) {
	s.answered, s.err, s.silent = now, err, false
	if err == nil {
		ready = slices.Sorted(maps.Keys(s.waiting))
		clear(s.waiting)
	}
	return ready
}

// waits reports whether a pod waits, and forgets those that have not asked for long.
func (s *state) waits(now time.Time) bool {
	maps.DeleteFunc(s.waiting, func(_ string, asked time.Time) bool { return now.Sub(asked) >= forget })
	return len(s.waiting) > 0
}
