// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest

import (
	"math"
	"time"
)

// growthDuring returns the limit for resizeMemory: how many bytes a process can allocate in the duration.
func (t *Tree) growthDuring(d time.Duration) func(pr *proc, more int64) int64 {
	return func(pr *proc, more int64) int64 {
		if t.opts.Mode == V1 {
			return more
		}
		// V2 delays each allocation above memory.high, and counts the delay as stall time
		return t.delayGrowth(pr.node, more, d)
	}
}

// delayGrowth returns how many of the requested bytes a process can allocate in the duration, and counts the stall time.
func (t *Tree) delayGrowth(cgroup *node, requested int64, d time.Duration) (allowed int64) {
	allowed = requested
	var slowest time.Duration
	for c := range cgroup.selfAndAncestors() {
		if c.limits.memoryHigh == noLimit {
			continue
		}
		h := highLimit(c.limits.memoryHigh)
		over := float64(c.usage.memory - c.limits.memoryHigh)
		slowest = max(slowest, min(d, h.growthTime(over, over+float64(requested))))
		allowed = min(allowed, int64(h.growthIn(over, d)))
	}
	if slowest > 0 {
		stall := float64(slowest) / float64(d)
		for c := range cgroup.selfAndAncestors() {
			c.addStall(1, stall, stall, d)
		}
		t.firePressure()
	}
	return max(allowed, 0)
}

// highLimit is a memory.high in bytes. Above it, each charge of chargeBatch bytes is delayed by delayFactor × r² seconds, at most
// maxDelay, where r is the excess divided by the limit. Source: calculate_high_delay in mm/memcontrol.c of Linux, with
// MEMCG_DELAY_PRECISION_SHIFT 20 and MEMCG_DELAY_SCALING_SHIFT 14.
type highLimit float64

const (
	chargeBatch = 64 * 4096 // bytes
	delayFactor = 64        // seconds
	maxDelay    = 2         // seconds
)

// cappedExcess returns the excess above memory.high, in bytes, at which the delay of an allocation reaches its maximum
// maxDelay.
func (h highLimit) cappedExcess() float64 {
	return float64(h) * math.Sqrt(float64(maxDelay)/delayFactor)
}

// speed returns how fast the third power of the excess above memory.high grows, in bytes³ per second.
func (h highLimit) speed() float64 { return 3 * chargeBatch * float64(h) * float64(h) / delayFactor }

// growthTime returns how long the excess above memory.high needs to grow between two values in bytes, which may be negative.
func (h highLimit) growthTime(from, to float64) time.Duration {
	if from, to = max(from, 0), max(to, 0); from >= to {
		return 0
	}
	capped := h.cappedExcess()
	var seconds float64
	if from < capped {
		mid := min(to, capped)
		seconds = (mid*mid*mid - from*from*from) / h.speed()
	}
	if to > capped {
		seconds += (to - max(from, capped)) / chargeBatch * maxDelay
	}
	return time.Duration(min(seconds*1e9, math.MaxInt64/2))
}

// growthIn returns how many bytes can be allocated in the duration, from an excess above memory.high that may be negative.
func (h highLimit) growthIn(excess float64, d time.Duration) (bytes float64) {
	seconds, from, capped := d.Seconds(), max(excess, 0), h.cappedExcess()
	if from < capped {
		to := math.Cbrt(from*from*from + h.speed()*seconds)
		if to <= capped {
			return to - excess
		}
		seconds -= h.growthTime(from, capped).Seconds()
		from = capped
	}
	return from + seconds/maxDelay*chargeBatch - excess
}
