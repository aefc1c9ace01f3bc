// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import "time"

// Hooks are called while a [Set] runs, from Run's goroutine with no lock held. Each hook may be nil. Hooks must return quickly
// and must not wait for the set.
type Hooks struct {
	// ValueChanged is called when the value of a probe has changed, after [Set.Result] returns the new value. This includes
	// initial values, set before the first probe or read from the store.
	ValueChanged func(Key, Value)
	// TargetRemoved is called when a probe has no target any more. [Set.Result] no longer returns its value.
	TargetRemoved func(Key)
	// ProbeFinished is called after each probe with the result and error of its last attempt and the time since its first attempt
	// (prober_probe_total, prober_probe_duration_seconds). A result with an error is ignored. It is not called if the container
	// has terminated meanwhile.
	ProbeFinished func(Key, Result, error, time.Duration)
	// ProbeDelayed is called before a probe that had to wait because of Options.Parallel or PodParallel, with the time that it
	// waited.
	ProbeDelayed func(Key, time.Duration)
	// StoreFailed is called when Options.Store cannot be read completely or cannot be written. Probes continue. Results are lost
	// at the end of the agent unless a later write succeeds.
	StoreFailed func(error)
}

// Status is the current load of a [Set].
type Status struct {
	Targets  int // probes that have a target
	InFlight int // running for about a second or less; at most Options.Parallel
	Slow     int // running for longer, within their timeouts
	Waiting  int // due, but waiting because of Options.Parallel or PodParallel
	// Hung counts probes whose prober has not returned a second after its timeout. Such a probe does not run again until its
	// prober returns, and does not delay probes of other pods.
	Hung    int
	Delayed uint64 // probes that had to wait, since the start
}
