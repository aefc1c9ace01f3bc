// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"cmp"
	"slices"
	"strings"
)

// EvictionRanker orders pods for eviction when the node is short of a signal's resource. Rank returns all pods, the first to
// evict first; it may reorder the slice. The result depends only on the arguments and not on the order of pods.
type EvictionRanker interface { //nolint:revive // a fixed name: it says what is ranked for wherever it is used
	Rank(s Signal, pods []Candidate) []Candidate
}

// RankerFunc implements [EvictionRanker] by a function.
type RankerFunc func(s Signal, pods []Candidate) []Candidate

// Rank calls f.
func (f RankerFunc) Rank(signal Signal, pods []Candidate) []Candidate { return f(signal, pods) }

// Compare returns a negative number if a is evicted before b, a positive number if after, and zero if equal. It must be a
// consistent order, because otherwise rankings are random.
type Compare func(a, b *Candidate) int

// OrderedBy returns a ranker that compares pods by the given functions. The first function that does not return zero
// decides. If all return zero, the UIDs decide. The ranker ignores the signal.
func OrderedBy(compare ...Compare) EvictionRanker { return comparisonRanker(compare) }

type comparisonRanker []Compare

// Rank sorts pods in place; the first pod is evicted first. It sorts indices and then moves the pods, because a Candidate is
// too large for frequent swaps.
func (o comparisonRanker) Rank(_ Signal, pods []Candidate) []Candidate {
	order := make([]int32, len(pods))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(i, j int32) int { return o.comparePods(&pods[i], &pods[j]) })
	reorderPods(pods, order)
	return pods
}

func (o comparisonRanker) comparePods(a, b *Candidate) int {
	for _, c := range o {
		if n := c(a, b); n != 0 {
			return n
		}
	}
	return strings.Compare(a.UID, b.UID)
}

// reorderPods sorts pods in place by the given order: the pod at index order[i] moves to index i. It overwrites order.
func reorderPods(pods []Candidate, order []int32) {
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

// RankOptions configures [NewRanker].
type RankOptions struct {
	Layout     Layout // zero: SingleFS
	IgnoreSwap bool   // compare the working set only, as the kubelet does; otherwise add swapped memory
}

// NewRanker returns a ranker that orders pods as the kubelet does. Source: pkg/kubelet/eviction/helpers.go.
//
// For memory, pods above their memory request are first, then pods with lower priority, then pods with the largest usage
// above the request. For disk space and inodes, the order is the same with the usage and the request of ephemeral storage.
// For process IDs, pods with lower priority are first, then pods with more tasks. Where usage is compared, pods without
// measured usage are first.
func NewRanker(opts RankOptions) EvictionRanker {
	memory := OrderedBy(CompareMemoryOverRequest(opts.IgnoreSwap), ComparePriority, CompareMemoryExcess(opts.IgnoreSwap))
	pids := OrderedBy(ComparePriority, CompareTasks)
	var disk [numSignals]EvictionRanker
	for i, s := range nodeSignals() {
		if s.conditionIndex() == 1 {
			disk[i] = OrderedBy(CompareStorageOverRequest(opts.Layout, s), ComparePriority, CompareStorageExcess(opts.Layout, s))
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

// ComparePriority is a [Compare] that evicts pods with lower priority first.
func ComparePriority(a, b *Candidate) int { return cmp.Compare(a.Priority, b.Priority) }

// CompareTasks is a [Compare] that evicts pods with more tasks (threads) first. Pods without measured usage precede the
// measured pods.
func CompareTasks(a, b *Candidate) int {
	if !a.Measured || !b.Measured {
		return compareTrueFirst(!a.Measured, !b.Measured)
	}
	return cmp.Compare(b.Tasks, a.Tasks)
}

// CompareMemoryOverRequest returns a [Compare] that evicts pods first if they use more memory than they request. If
// ignoreSwap is true, swapped memory does not count. Pods without measured usage precede all others.
func CompareMemoryOverRequest(ignoreSwap bool) Compare {
	over := func(c *Candidate) bool { return c.memoryUsage(ignoreSwap) > c.MemoryRequest }
	return func(a, b *Candidate) int {
		if !a.Measured || !b.Measured {
			return compareTrueFirst(!a.Measured, !b.Measured)
		}
		return compareTrueFirst(over(a), over(b))
	}
}

// CompareMemoryExcess returns a [Compare] by memory usage minus memory request. It evicts the pod with the largest
// difference first. If ignoreSwap is true, swapped memory does not count. Pods without measured usage precede all others.
func CompareMemoryExcess(ignoreSwap bool) Compare {
	excess := func(c *Candidate) int64 { return addSaturated(c.memoryUsage(ignoreSwap), -c.MemoryRequest) }
	return func(a, b *Candidate) int {
		if !a.Measured || !b.Measured {
			return compareTrueFirst(!a.Measured, !b.Measured)
		}
		return cmp.Compare(excess(b), excess(a))
	}
}

// CompareStorageOverRequest returns a [Compare] that evicts pods first if they use more of the signal's filesystem than they
// request. For a signal of inodes, these are the pods that use any inode. Pods without measured usage precede all others.
func CompareStorageOverRequest(layout Layout, signal Signal) Compare {
	counts, inodes := layout.countedStorage(signal), signal.Resource() == Inodes
	over := func(c *Candidate) bool {
		if inodes {
			return c.diskUsage(counts, true) > 0
		}
		return c.diskUsage(counts, false) > c.StorageRequest
	}
	return func(a, b *Candidate) int {
		if !a.Measured || !b.Measured {
			return compareTrueFirst(!a.Measured, !b.Measured)
		}
		return compareTrueFirst(over(a), over(b))
	}
}

// CompareStorageExcess returns a [Compare] that evicts first the pod whose usage of the signal's filesystem most exceeds its
// ephemeral-storage request. As in the kubelet, the request is also subtracted from a number of inodes. Pods without
// measured usage precede all others.
func CompareStorageExcess(layout Layout, signal Signal) Compare {
	counts, inodes := layout.countedStorage(signal), signal.Resource() == Inodes
	excess := func(c *Candidate) int64 { return addSaturated(c.diskUsage(counts, inodes), -c.StorageRequest) }
	return func(a, b *Candidate) int {
		if !a.Measured || !b.Measured {
			return compareTrueFirst(!a.Measured, !b.Measured)
		}
		return cmp.Compare(excess(b), excess(a))
	}
}

// memoryUsage returns the working set of the pod in bytes. It adds swapped memory unless ignoreSwap is true.
func (c *Candidate) memoryUsage(ignoreSwap bool) int64 {
	if ignoreSwap {
		return c.Memory
	}
	return addSaturated(c.Memory, c.Swap)
}

// compareTrueFirst compares a and b for sorting true before false. Like cmp.Compare, it returns a negative number, zero
// or a positive number.
func compareTrueFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	default:
		return 1
	}
}
