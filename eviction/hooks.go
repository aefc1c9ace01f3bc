// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package eviction

import "time"

// Hooks report the actions of an [Evictor] for metrics and events. Each may be nil. They are called without locks held from Run
// or its goroutines, and must not block.
type Hooks struct {
	// Observed is called with each observation, without candidates.
	Observed func(Observation)
	// ConditionsChanged is called with all true conditions after a change.
	ConditionsChanged func([]Condition)
	// ThresholdMet is called when an action starts for a signal, with the age of its reading (event EvictionThresholdMet, metric
	// eviction_stats_age_seconds).
	ThresholdMet func(s Signal, age time.Duration)
	Reclaimed    func(r Reclaim, freed int64, err error)
	// Evicting is called before a pod is killed (event Evicted, metric evictions).
	Evicting func(Eviction)
	Evicted  func(e Eviction, err error) // the pod has terminated, or its eviction failed
	Error    func(error)                 // a measurement failed
	// NoVictim is called once per signal whose threshold is met while no pod can be evicted, and again after no threshold was
	// met. Static pods are critical unless podevict.Options.EvictStatic is set.
	NoVictim func(NoVictim)
}
