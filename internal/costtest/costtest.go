// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package costtest fails a test whose function allocates more memory or takes more time than it may. It holds fuzz
// targets of parsers to a bound per input, and it is no benchmark: what stays below the bound is not reported.
//
// A test that uses it does not run in parallel with others: what they allocate at the same time counts, too.
package costtest

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
	"time"
)

// The bounds of a zero [Limit]: what a manifest of 1 MiB may cost.
const (
	DefaultBytes = 64 << 20
	DefaultTime  = time.Second
)

// runs is how often a function is run before it is over its limit. Whatever else the machine does adds to what one run
// seems to cost and never takes from it, so that the cheapest run counts.
const runs = 3

// Limit is what a function may cost.
type Limit struct {
	// Bytes is how much the function may allocate in all, including what is garbage before it returns. Zero means
	// [DefaultBytes]. The race detector makes it twice as much: with it, a sync.Pool loses at random what it is given, so
	// that decoders allocate their buffers again and again.
	Bytes uint64
	// Time is how long the function may take: CPU time, or a quarter of what the clock says if that is more, so that a
	// function that waits is found and one that waits for a busy machine is not. Zero means [DefaultTime]. The race detector
	// makes it ten times as long.
	Time time.Duration
}

func (l Limit) orDefault() Limit {
	if l.Bytes == 0 {
		l.Bytes = DefaultBytes
	}
	if l.Time == 0 {
		l.Time = DefaultTime
	}
	if raceDetector() {
		l.Time *= 10
		l.Bytes *= 2
	}
	return l
}

// Check runs f and fails the test if it costs more than the limit. One that is over the limit is run again, at most
// twice, and passes if any run is within it: f does the same each time.
func Check(t testing.TB, limit Limit, f func()) {
	t.Helper()
	if err := check(limit.orDefault(), f); err != nil {
		t.Fatal(err)
	}
}

// check is Check with its limits filled in.
func check(limit Limit, f func()) error {
	least := measure(f)
	for i := 1; i < runs && (least.Bytes > limit.Bytes || least.Time > limit.Time); i++ {
		again := measure(f)
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

// measure returns what one run of f costs.
func measure(f func()) Limit {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start, cpu := time.Now(), cpuTime()
	f()
	took := min(time.Since(start), max(cpuTime()-cpu, time.Since(start)/4))
	runtime.ReadMemStats(&after)
	return Limit{Bytes: after.TotalAlloc - before.TotalAlloc, Time: took}
}

// raceDetector reports whether the test was built with the race detector.
func raceDetector() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}
