// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"fmt"
	"math"
	"time"
)

// Reading is the measured value of one signal: the available amount of a resource and its capacity.
type Reading struct {
	Signal    Signal
	Available int64     // free bytes, inodes or process IDs; negative if usage exceeds the capacity
	Capacity  int64     // base of percentages
	Time      time.Time // time of the measurement; zero: now. A reading with an unchanged Time counts as the previous reading
	// Reclaimable is the number of bytes that the kernel can reclaim from caches or swap out, for memory signals only; see
	// [ReclaimCache].
	Reclaimable int64
}

// validate returns an error if the reading has an unknown signal, a capacity that is not positive, or more available than
// its capacity.
func (r Reading) validate() error {
	switch {
	case r.Signal.index() < 0:
		return &readingError{"", fmt.Sprintf("reading of %q: not a signal such as %s", r.Signal, MemoryAvailable)}
	case r.Capacity <= 0:
		return &readingError{r.Signal, fmt.Sprintf("reading of %s: capacity %d must be positive", r.Signal, r.Capacity)}
	case r.Available > r.Capacity:
		return &readingError{r.Signal, fmt.Sprintf("reading of %s: available %d is more than the capacity %d", r.Signal, r.Available, r.Capacity)}
	default:
		return nil
	}
}

// readingError is the error of a reading that is invalid and was skipped.
type readingError struct {
	signal Signal // empty: unknown signal
	text   string
}

func (e *readingError) Error() string { return e.text }

// Observation is the measured state of the node: the input of one decision.
type Observation struct {
	Layout Layout
	// Readings has no reading for signals that were not measured. Of two readings of a signal the one with less available counts,
	// for example process IDs of the node and of all pods.
	Readings []Reading

	// Candidates are all running pods. Measured is true if they were measured for this decision.
	Candidates []Candidate
	Measured   bool
	// Measuring means that a measurement of the candidates is running. The decision then includes only actions that do not need
	// them.
	Measuring bool
}

// ReclaimKind is a bit set of resources to reclaim.
type ReclaimKind uint8

// Kinds of reclaim, in the order of their execution.
const (
	ReclaimCache      ReclaimKind = 1 << iota // page cache and swappable memory; no process is killed
	ReclaimContainers                         // terminated containers
	ReclaimImages                             // unused images
)

// Reclaim is a request of a [Decision] to free a resource before a pod is evicted.
type Reclaim struct {
	Signal  Signal
	Kind    ReclaimKind
	Missing int64 // amount to free, in the unit of the signal

	begun time.Time // identifies the reclaim among those of its resource
}

// Eviction is a pod to evict, with the reason.
type Eviction struct {
	UID    string
	Name   string // Candidate.Name
	Signal Signal
	// Threshold and Available are the quantities in Message; empty for limits of local storage.
	Threshold, Available string
	// Message is the kubelet's message without the part about single containers, which package podevict adds.
	Message string
	Grace   time.Duration // time to terminate, at least one second
	// Urgent means that the node is short of memory now: the pod must not use more memory, and is killed at the end of its grace
	// period even if the runtime hangs.
	Urgent bool
}

// formatAmounts returns two Kubernetes quantities for a message: the value of the threshold t, and the available amount.
func (r Reading) formatAmounts(t Threshold) (quantity, available string) {
	format := DecimalSI
	if s := r.Signal.Resource(); s == Memory || s == EphemeralStorage {
		format = BinarySI
	}
	return t.Value.formatFor(r.Capacity), format.formatQuantity(r.Available)
}

// isBelow reports whether less than the value of a threshold, perhaps plus its minimum reclaim, is available.
func (r Reading) isBelow(t Threshold, withReclaim bool) bool {
	return r.amountMissing(t, withReclaim) > 0
}

// amountMissing returns the amount that must be freed to make a threshold's value, perhaps plus its minimum reclaim,
// available.
func (r Reading) amountMissing(t Threshold, withReclaim bool) int64 {
	want := t.Value.Of(r.Capacity)
	if withReclaim {
		want = addSaturated(want, t.MinReclaim.Of(r.Capacity))
	}
	// zero or negative if enough is available
	return addSaturated(want, -max(r.Available, -math.MaxInt64))
}
