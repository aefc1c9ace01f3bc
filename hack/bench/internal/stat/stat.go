// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package stat computes and prints the figures of benchmarks.
package stat

import (
	"math"
	"slices"
	"strconv"
)

// Quantile returns the q-quantile of values (0 is the minimum, 1 the maximum), interpolated between neighbours, and NaN if
// values is empty. It does not modify values.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	at := q * float64(len(sorted)-1)
	low := int(at)
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (at-float64(low))*(sorted[high]-sorted[low])
}

// Median returns the 0.5-quantile of values.
func Median(values []float64) float64 { return Quantile(values, 0.5) }

// Ratio returns a divided by b, and NaN if a or b is not positive: a figure that is too small to measure may be zero or
// negative.
func Ratio(a, b float64) float64 {
	if a <= 0 || b <= 0 {
		return math.NaN()
	}
	return a / b
}

// Cell returns the text of a figure in a table: three decimals, and a dash for NaN and infinity.
func Cell(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "-"
	}
	return strconv.FormatFloat(v, 'f', 3, 64)
}
