// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"

	"github.com/seed81659283/nodeagent/eviction"
)

// relativeExcess is an eviction ranking of your own. It evicts the pod with the lowest priority first; among equal priorities, the pod whose memory
// is the largest multiple of its request. The kubelet compares the difference in bytes: it evicts a large pod that is slightly above its request
// before a small pod that uses many times its request.
func relativeExcess(eviction.Layout) eviction.EvictionRanker {
	const least = 32 << 20 // bytes: the request of a pod that requests less or nothing
	multiple := func(c *eviction.Candidate) float64 { return float64(c.Memory) / float64(max(c.MemoryRequest, least)) }
	return eviction.OrderedBy(
		eviction.ComparePriority,
		func(a, b *eviction.Candidate) int { return cmp.Compare(multiple(b), multiple(a)) },
	)
}
