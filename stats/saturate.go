// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"math"
	"math/bits"
)

// Numbers come from file systems and runtimes that others run. What does not fit is the largest number, and what would be
// less than nothing is zero.

func mul(a, b uint64) uint64 {
	high, low := bits.Mul64(a, b)
	if high != 0 {
		return math.MaxUint64
	}
	return low
}

func add(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry != 0 {
		return math.MaxUint64
	}
	return sum
}

func sub(a, b uint64) uint64 { return a - min(a, b) }

// signed returns n as a signed number.
func signed(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

// plus adds numbers that may be unknown: unknown is only a sum of unknown ones.
func plus(a, b *uint64) *uint64 {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	sum := add(*a, *b)
	return &sum
}
