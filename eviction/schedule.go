// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"time"
)

const (
	// minPeriod and maxPeriod limit the time between two observations.
	minPeriod = 100 * time.Millisecond
	maxPeriod = 10 * time.Second
	// checksBeforeThreshold is the number of observations planned before a threshold is reached at the current speed, because
	// usage may accelerate.
	checksBeforeThreshold = 4
)

// readingSample is the last reading of a signal with its rate of decrease.
type readingSample struct {
	known     bool
	available int64
	time      time.Time // Reading.Time
	at        time.Time // when the reading was observed
	speed     float64   // decrease of the available amount per second, at least zero
}

// nextSample returns the sample of a new reading, with the decrease per second since the previous sample s.
func (s readingSample) nextSample(reading Reading, now time.Time) readingSample {
	n := readingSample{known: true, available: reading.Available, time: reading.Time, at: now}
	if !s.known {
		return n
	}
	took := now.Sub(s.at)
	if !reading.Time.IsZero() && !s.time.IsZero() {
		took = reading.Time.Sub(s.time)
	}
	if took <= 0 { // an unchanged reading, or a changed clock
		n.speed = s.speed
		return n
	}
	n.speed = max(float64(s.available)-float64(reading.Available), 0) / took.Seconds()
	return n
}

// isNew reports whether the reading was taken after the sample s.
func (s readingSample) isNew(reading Reading, now time.Time) bool {
	// A reading without a time is always new. If s is in the future, the clock was set back.
	return !s.known || reading.Time.IsZero() || reading.Time.After(s.time) || s.time.After(now) && !reading.Time.Equal(s.time)
}

// minExhaustSeconds returns the shortest time in which processes are expected to use up the whole capacity.
func (s Signal) minExhaustSeconds() float64 {
	switch s.Resource() {
	case Memory:
		return 16
	case PIDs:
		return 8
	default:
		return 120
	}
}

// nextPeriod returns the time to wait before the signal is observed again: a quarter of the estimated time until reading meets
// threshold t. The result is at least minPeriod and at most maxPeriod.
func (s readingSample) nextPeriod(reading Reading, t Threshold) time.Duration {
	left := -float64(reading.amountMissing(t, false))
	// The usage may accelerate at any time: the fastest expected growth counts.
	speed := max(s.speed, float64(reading.Capacity)/reading.Signal.minExhaustSeconds())
	if speed <= 0 {
		return maxPeriod
	}
	seconds := left / speed / checksBeforeThreshold
	return max(min(time.Duration(min(seconds, maxPeriod.Seconds())*float64(time.Second)), maxPeriod), minPeriod)
}
