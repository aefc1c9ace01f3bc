// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"fmt"
	"math"
	"time"
)

// Reading is what a signal measured.
type Reading struct {
	Signal    Signal
	Available int64     // bytes, inodes or process IDs that are left; below zero where more is used than there is
	Capacity  int64     // of which percentages are taken
	Time      time.Time // when it was measured; the zero time: just now. What has the time of the reading before is the same one
	// Reclaimable is how much the kernel can take from caches and move to swap, of the two signals of memory; see [ReclaimCache].
	Reclaimable int64
}

// check returns why nothing can be decided from a reading.
func (r Reading) check() error {
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

// readingError says why nothing can be decided from a reading.
type readingError struct {
	signal Signal // empty: of none that there is
	text   string
}

func (e *readingError) Error() string { return e.text }

// Observation is what was measured for one decision.
type Observation struct {
	Layout Layout
	// Readings of signals that nothing is known of are missing. Of two of one signal, such as process IDs of the node and of all
	// pods, the one counts that has less available.
	Readings []Reading

	// Candidates are all pods that run something, if they were measured for this decision, and Measured says that they were.
	Candidates []Candidate
	Measured   bool
	// Measuring says that they are being measured: what can be decided without them is, and the rest waits until they are there.
	Measuring bool
}

// ReclaimKind says what is reclaimed; several of them are or-ed.
type ReclaimKind uint8

// What is reclaimed, in this order.
const (
	ReclaimCache      ReclaimKind = 1 << iota // memory that the kernel takes from caches and moves to swap, without ending anything
	ReclaimContainers                         // containers that have terminated
	ReclaimImages                             // images that nothing uses
)

// Reclaim is what is to be made free before a pod is evicted. It is that of a [Decision].
type Reclaim struct {
	Signal  Signal
	Kind    ReclaimKind
	Missing int64 // how much is missing, in the unit of the signal

	begun time.Time // which one it is of its resource
}

// Eviction is a pod that is to go, and why.
type Eviction struct {
	UID    string
	Name   string // as the candidate has it
	Signal Signal
	// Threshold and Available are what Message says; both are empty where a limit of local storage is exceeded.
	Threshold, Available string
	// Message is the kubelet's, without what it says of single containers: package podevict adds that.
	Message string
	Grace   time.Duration // how long the pod may take to terminate, at least a second
	// Urgent says that the node is short of memory now: the pod must not use more while it terminates, and is killed at the end
	// of its grace period whatever the runtime does.
	Urgent bool
}

// amounts returns the threshold and what is left of it as Kubernetes writes them.
func (r Reading) amounts(t Threshold) (quantity, available string) {
	format := DecimalSI
	if s := r.Signal.Resource(); s == Memory || s == EphemeralStorage {
		format = BinarySI
	}
	return t.Value.quantity(r.Capacity), format.quantity(r.Available)
}

// met reports whether less is left than the threshold, or than it and what it reclaims.
func (r Reading) met(t Threshold, withReclaim bool) bool {
	return r.missing(t, withReclaim) > 0
}

// missing returns how much less is left than the threshold asks for; it is zero or less where the threshold is not met.
func (r Reading) missing(t Threshold, withReclaim bool) int64 {
	want := t.Value.Of(r.Capacity)
	if withReclaim {
		want = addUp(want, t.MinReclaim.Of(r.Capacity))
	}
	return addUp(want, -max(r.Available, -math.MaxInt64))
}
