// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"cmp"
	"slices"
	"strings"
)

// EvictionRanker says in which order pods are evicted when the node is short of what a signal measures. Rank puts the first
// one to go first; it may reorder pods, and it returns all of them. The order depends on nothing but its arguments, and is the
// same however they are ordered before.
type EvictionRanker interface { //nolint:revive // a fixed name: it says what is ranked for wherever it is used
	Rank(s Signal, pods []Candidate) []Candidate
}

// RankerFunc is a function that ranks.
type RankerFunc func(s Signal, pods []Candidate) []Candidate

// Rank calls f.
func (f RankerFunc) Rank(s Signal, pods []Candidate) []Candidate { return f(s, pods) }

// Compare returns a negative number if a is evicted before b, a positive one if it is evicted after b, and zero if it does not
// matter. It must order pods: two that are before each other would make a ranking depend on chance.
type Compare func(a, b *Candidate) int

// OrderedBy returns a ranker that asks one comparison after the other, until one makes a difference, whatever the signal is. Pods
// that are equal in all of them are ordered by UID.
func OrderedBy(compare ...Compare) EvictionRanker { return ordered(compare) }

type ordered []Compare

// Rank sorts numbers in place of pods, and moves each pod once.
func (o ordered) Rank(_ Signal, pods []Candidate) []Candidate {
	order := make([]int32, len(pods))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(i, j int32) int { return o.compare(&pods[i], &pods[j]) })
	permute(pods, order)
	return pods
}

func (o ordered) compare(a, b *Candidate) int {
	for _, c := range o {
		if n := c(a, b); n != 0 {
			return n
		}
	}
	return strings.Compare(a.UID, b.UID)
}

// permute moves each pod to its place: the pod for place i is at order[i]. It uses up order.
func permute(pods []Candidate, order []int32) {
	for start := range order {
		if order[start] < 0 || order[start] == int32(start) {
			continue
		}
		first, at := pods[start], start
		for {
			from := int(order[at])
			order[at] = -1
			if from == start {
				pods[at] = first
				break
			}
			pods[at] = pods[from]
			at = from
		}
	}
}

// RankOptions tune [NewRanker].
type RankOptions struct {
	Layout     Layout // zero: SingleFS
	IgnoreSwap bool   // count the working set alone, as the kubelet does; otherwise swapped memory counts too
}

// NewRanker returns the kubelet's order. For memory: pods that use more than they request, then lower priority, then who uses most
// beyond the request. For a filesystem the same, with what of a pod is on it. For process IDs: lower priority, then more tasks.
// Pods that were not measured are first wherever usage is compared. Source: pkg/kubelet/eviction/helpers.go.
func NewRanker(o RankOptions) EvictionRanker {
	memory := OrderedBy(CompareMemoryOverRequest(o.IgnoreSwap), ComparePriority, CompareMemoryExcess(o.IgnoreSwap))
	pids := OrderedBy(ComparePriority, CompareTasks)
	var disk [numSignals]EvictionRanker
	for i, s := range nodeSignals() {
		if s.condition() == 1 {
			disk[i] = OrderedBy(CompareStorageOverRequest(o.Layout, s), ComparePriority, CompareStorageExcess(o.Layout, s))
		}
	}
	return RankerFunc(func(s Signal, pods []Candidate) []Candidate {
		switch s.Resource() {
		case Memory:
			return memory.Rank(s, pods)
		case EphemeralStorage, Inodes:
			return disk[s.index()].Rank(s, pods)
		default:
			return pids.Rank(s, pods)
		}
	})
}

// ComparePriority evicts pods of lower priority first.
func ComparePriority(a, b *Candidate) int { return cmp.Compare(a.Priority, b.Priority) }

// CompareTasks evicts pods with more tasks first.
func CompareTasks(a, b *Candidate) int {
	if !a.Measured || !b.Measured {
		return first(!a.Measured, !b.Measured)
	}
	return cmp.Compare(b.Tasks, a.Tasks)
}

// CompareMemoryOverRequest evicts pods first that use more memory than they request.
func CompareMemoryOverRequest(ignoreSwap bool) Compare {
	over := func(c *Candidate) bool { return c.memory(ignoreSwap) > c.MemoryRequest }
	return func(a, b *Candidate) int {
		if !a.Measured || !b.Measured {
			return first(!a.Measured, !b.Measured)
		}
		return first(over(a), over(b))
	}
}

// CompareMemoryExcess evicts pods first that use most memory beyond their request.
func CompareMemoryExcess(ignoreSwap bool) Compare {
	excess := func(c *Candidate) int64 { return addUp(c.memory(ignoreSwap), -c.MemoryRequest) }
	return func(a, b *Candidate) int {
		if !a.Measured || !b.Measured {
			return first(!a.Measured, !b.Measured)
		}
		return cmp.Compare(excess(b), excess(a))
	}
}

// CompareStorageOverRequest evicts pods first that use more of the filesystem of a signal than they request. Nobody requests inodes: for
// their signals it is pods that use any.
func CompareStorageOverRequest(l Layout, s Signal) Compare {
	counts, inodes := l.counts(s), s.Resource() == Inodes
	over := func(c *Candidate) bool {
		if inodes {
			return c.disk(counts, true) > 0
		}
		return c.disk(counts, false) > c.StorageRequest
	}
	return func(a, b *Candidate) int {
		if !a.Measured || !b.Measured {
			return first(!a.Measured, !b.Measured)
		}
		return first(over(a), over(b))
	}
}

// CompareStorageExcess evicts pods first that use most of the filesystem of a signal beyond their request of ephemeral-storage, which the
// kubelet also subtracts from a number of inodes.
func CompareStorageExcess(l Layout, s Signal) Compare {
	counts, inodes := l.counts(s), s.Resource() == Inodes
	excess := func(c *Candidate) int64 { return addUp(c.disk(counts, inodes), -c.StorageRequest) }
	return func(a, b *Candidate) int {
		if !a.Measured || !b.Measured {
			return first(!a.Measured, !b.Measured)
		}
		return cmp.Compare(excess(b), excess(a))
	}
}

// memory returns what counts as the memory of a pod.
func (c *Candidate) memory(ignoreSwap bool) int64 {
	if ignoreSwap {
		return c.Memory
	}
	return addUp(c.Memory, c.Swap)
}

// first compares two booleans: true is first.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	default:
		return 1
	}
}
