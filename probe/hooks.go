// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import "time"

// Hooks are called as a [Set] works, from Run's goroutine with no lock held. Any may be nil. They must be quick, and
// must not wait for the set.
type Hooks struct {
	// Changed is called when there is something new to say of a container: also with what is said before its
	// first probe, and with what an earlier agent has found. [Set.Result] already returns it.
	ValueChanged func(Key, Value)
	// Removed is called when a probe is no longer wanted; [Set.Result] no longer knows it.
	TargetRemoved func(Key)
	// Probed is called after each probe with its last attempt and the time since its first
	// (prober_probe_total, prober_probe_duration_seconds). A result that comes with an error counts for nothing.
	// A probe whose container is gone by the time it ends is not reported.
	ProbeFinished func(Key, Result, error, time.Duration)
	// Delayed is called before a probe that had to wait for others in flight: see Options.Parallel and PodParallel.
	ProbeDelayed func(Key, time.Duration)
	// StoreFailed is called when Options.Store cannot be read in full, or not be written. The probes go on; what
	// this agent knows is lost with it unless a later write succeeds.
	StoreFailed func(error)
}

// Status is how a [Set] does.
type Status struct {
	Targets  int // wanted
	InFlight int // for a second or less; at most Options.Parallel
	Slow     int // in flight for longer, within their timeouts
	Waiting  int // due, but Options.Parallel or PodParallel others are in flight
	// Hung are those whose prober has not returned a second after its timeout. They are not run again until it
	// returns, and keep no probe of another pod from running.
	Hung    int
	Delayed uint64 // probes that had to wait, since the start
}
