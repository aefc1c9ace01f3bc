// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package costtest fails a test whose function allocates too much memory or takes too long. It bounds parsers in fuzz tests, per
// input. It is no benchmark: a cost below the limit is not reported.
//
// A test that uses it must not run in parallel with other tests, because their allocations count too.
package costtest

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
	"time"
)

// Defaults for the fields of [Limit]. They suffice for a function that parses a manifest of 1 MiB.
const (
	DefaultBytes = 64 << 20
	DefaultTime  = time.Second
)

// maxRuns is the number of runs after which Check fails. Other programs can only make a run more expensive, so the cheapest
// counts.
const maxRuns = 3

// Limit is the maximum cost of one run of a function.
type Limit struct {
	// Bytes is the largest total allocation, including garbage. Zero means [DefaultBytes]. With the race detector the limit is
	// doubled, because a sync.Pool then drops buffers at random.
	Bytes uint64
	// Time is the longest duration: the CPU time, or a quarter of the elapsed time if that is more. So a waiting function is
	// found, and one on a busy machine passes. Zero means [DefaultTime]. With the race detector the limit is ten times as long.
	Time time.Duration
}

// withDefaults returns l with defaults for its zero fields. It raises the limits for bytes and time if the test was built
// with the race detector.
func (l Limit) withDefaults() Limit {
	if l.Bytes == 0 {
		l.Bytes = DefaultBytes
	}
	if l.Time == 0 {
		l.Time = DefaultTime
	}
	if hasRaceDetector() {
		l.Time *= 10
		l.Bytes *= 2
	}
	return l
}

// Check runs f, and fails the test if f exceeds limit. On a busy machine f gets up to three runs, of which the lowest bytes
// and the lowest time count. f must do the same work in each run.
func Check(t testing.TB, limit Limit, f func()) {
	t.Helper()
	if err := checkCost(limit.withDefaults(), f); err != nil {
		t.Fatal(err)
	}
}

// checkCost returns an error if f exceeds limit in all of its runs, as described at [Check]. No field of limit may be zero.
func checkCost(limit Limit, f func()) error {
	least := measureCost(f)
	for i := 1; i < maxRuns && (least.Bytes > limit.Bytes || least.Time > limit.Time); i++ {
		again := measureCost(f)
		least = Limit{Bytes: min(least.Bytes, again.Bytes), Time: min(least.Time, again.Time)}
	}
	switch {
	case least.Bytes > limit.Bytes:
		return fmt.Errorf("allocated %d bytes, the limit is %d", least.Bytes, limit.Bytes)
	case least.Time > limit.Time:
		return fmt.Errorf("took %v, the limit is %v", least.Time, limit.Time)
	}
	return nil
}

// measureCost runs f once, and returns the bytes that it allocated and its CPU time.
func measureCost(f func()) Limit {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start, cpu := time.Now(), cpuTime()
	f()
	// A quarter of the elapsed time is the minimum, so that waiting counts too.
	took := min(time.Since(start), max(cpuTime()-cpu, time.Since(start)/4))
	runtime.ReadMemStats(&after)
	return Limit{Bytes: after.TotalAlloc - before.TotalAlloc, Time: took}
}

// hasRaceDetector reports whether the test was built with the race detector.
func hasRaceDetector() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}
