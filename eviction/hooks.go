// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package eviction

import "time"

// Hooks tell what an [Evictor] does, for metrics and events. Any func may be nil. They are called from Run or from goroutines of it,
// with no lock held, and must not block.
type Hooks struct {
	// Observed gets each observation, without candidates.
	Observed func(Observation)
	// ConditionsChanged gets all conditions that are true when they are others than before.
	ConditionsChanged func([]Condition)
	// ThresholdMet gets the signal that something is done about now and how old its reading is: the kubelet's node event
	// EvictionThresholdMet and its metric eviction_stats_age_seconds.
	ThresholdMet func(s Signal, age time.Duration)
	Reclaimed    func(r Reclaim, freed int64, err error)
	// Evicting is called before anything of a pod is killed: the kubelet's pod event Evicted and its metric evictions.
	Evicting func(Eviction)
	Evicted  func(e Eviction, err error) // the pod is gone, or it could not be evicted
	Error    func(error)                 // something could not be measured
	// NoVictim is called once for each signal whose threshold is met while no pod can be evicted, and again after no threshold was
	// met. Static pods are critical, and so are no victims, unless podevict.Options.EvictStatic says otherwise.
	NoVictim func(NoVictim)
}
