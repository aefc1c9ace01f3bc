// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"math"
	"math/bits"
)

// The values come from file systems and container runtimes, which may report any number. Results that overflow are the largest
// number, and negative results are zero.

func mulSaturated(a, b uint64) uint64 {
	high, low := bits.Mul64(a, b)
	if high != 0 {
		return math.MaxUint64
	}
	return low
}

func addSaturated(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry != 0 {
		return math.MaxUint64
	}
	return sum
}

func subSaturated(a, b uint64) uint64 { return a - min(a, b) }

// toInt64 converts n, limited to the largest int64.
func toInt64(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

// addOptional returns the sum of a and b. A nil value counts as zero. If both are nil, the sum is nil.
func addOptional(a, b *uint64) *uint64 {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	sum := addSaturated(*a, *b)
	return &sum
}
