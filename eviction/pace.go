// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"time"
)

const (
	// minPeriod and maxPeriod are the least and the most from one observation to the next.
	minPeriod = 100 * time.Millisecond
	maxPeriod = 10 * time.Second
	// margin is in how many observations a threshold is approached: things get faster.
	margin = 4
)

// sample is a reading as it is remembered.
type sample struct {
	known     bool
	available int64
	time      time.Time // as the reading has it
	at        time.Time // when it was observed
	speed     float64   // what became less of it in a second; zero: it became more
}

// next returns the sample of a reading that comes after s.
func (s sample) next(r Reading, now time.Time) sample {
	n := sample{known: true, available: r.Available, time: r.Time, at: now}
	if !s.known {
		return n
	}
	took := now.Sub(s.at)
	if !r.Time.IsZero() && !s.time.IsZero() {
		took = r.Time.Sub(s.time)
	}
	if took <= 0 { // the same reading again, or a clock that was set
		n.speed = s.speed
		return n
	}
	n.speed = max(float64(s.available)-float64(r.Available), 0) / took.Seconds()
	return n
}

// fresh reports whether a reading is not the one before. A reading that is older counts if the one before is ahead of the clock,
// which was set back then.
func (s sample) fresh(r Reading, now time.Time) bool {
	return !s.known || r.Time.IsZero() || r.Time.After(s.time) || s.time.After(now) && !r.Time.Equal(s.time)
}

// rush is in how many seconds the whole capacity may be used up by something that begins now. No reading can tell that before.
func (s Signal) rush() float64 {
	switch s.Resource() {
	case Memory:
		return 16
	case PIDs:
		return 8
	default:
		return 120
	}
}

// period returns when a threshold that is not met has to be looked at again.
func (s sample) period(r Reading, t Threshold) time.Duration {
	left := -float64(r.missing(t, false))
	speed := max(s.speed, float64(r.Capacity)/r.Signal.rush())
	if speed <= 0 {
		return maxPeriod
	}
	seconds := left / speed / margin
	return max(min(time.Duration(min(seconds, maxPeriod.Seconds())*float64(time.Second)), maxPeriod), minPeriod)
}
