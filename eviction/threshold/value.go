// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package threshold reads and writes the amounts of eviction thresholds: a Kubernetes quantity such as "100Mi", or a
// percentage of the capacity such as "10%". It knows no signals, which are in package eviction, and no third-party package:
// quantities are read without apimachinery.
//
//	v, err := threshold.ParseValue("10%")
//	v.Of(10 << 30) // 1073741840: the kubelet computes percentages as 32-bit floats, and so does this package
//
// All functions are pure and may be called from any goroutine. An error has the text that cannot be read in it.
//
// # Differs from the kubelet
//
// The model is pkg/kubelet/eviction/helpers.go of Kubernetes 1.37. DIFFERENCES.md has the whole list.
//
//   - A fraction of a unit is rounded up to a whole one, and what is beyond 2^63-1 is 2^63-1.
//   - NaN% and quantities without a digit are errors, and so are texts of more than 64 bytes.
//
// Test kit: none is needed; a [Value] can be written as a literal.
package threshold

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// maxText is how long a text may be that is read.
const maxText = 64

// Value is an amount: of bytes, inodes or process IDs, as it is written or as a fraction of the capacity. Values can be
// compared with ==. The zero value is nothing.
type Value struct {
	Amount   int64   // used where it is not zero
	Fraction float32 // of the capacity, such as 0.05 for 5%
	Format   Format  // how String writes Amount
}

// Of returns the amount for a capacity, at most 2^63-1.
func (v Value) Of(capacity int64) int64 {
	if v.Amount != 0 {
		return v.Amount
	}
	switch amount := float64(capacity) * float64(v.Fraction); {
	case amount >= math.MaxInt64:
		return math.MaxInt64
	case amount <= math.MinInt64:
		return math.MinInt64
	default:
		return int64(amount)
	}
}

// Quantity returns the amount for a capacity as Kubernetes writes it, such as "1500Mi".
func (v Value) Quantity(capacity int64) string {
	format := v.Format
	if v.Amount == 0 {
		format = BinarySI
	}
	return format.Quantity(v.Of(capacity))
}

// String returns the value as it is written in a configuration.
func (v Value) String() string {
	if v.Amount == 0 && v.Fraction != 0 {
		return strconv.FormatFloat(float64(v.Fraction)*100, 'g', 6, 64) + "%"
	}
	return v.Format.Quantity(v.Amount)
}

// ParseValue reads how much of a resource is kept free. It is positive, or a percentage from 0% to 100%; "0%" and "100%"
// mean that nothing is kept free, and the result is the zero Value.
func ParseValue(s string) (Value, error) {
	if Disabled(s) {
		return Value{}, nil
	}
	v, err := parse(s)
	switch {
	case err != nil:
		return Value{}, err
	case strings.HasSuffix(s, "%") && !(v.Fraction >= 0 && v.Fraction <= 1):
		return Value{}, fmt.Errorf("%q: must be between 0%% and 100%%", s)
	case !strings.HasSuffix(s, "%") && v.Amount <= 0:
		return Value{}, fmt.Errorf("%q: must be positive", s)
	}
	return v, nil
}

// Disabled reports whether a text means that there is no threshold: it is exactly "0%" or "100%".
func Disabled(s string) bool { return s == "0%" || s == "100%" }

// ParseReclaim reads how much more is made free once a threshold is met. It is zero or positive; a percentage is positive and
// may be more than 100%.
func ParseReclaim(s string) (Value, error) {
	v, err := parse(s)
	switch {
	case err != nil:
		return Value{}, err
	case strings.HasSuffix(s, "%") && !(v.Fraction > 0 && v.Fraction <= math.MaxFloat32):
		return Value{}, fmt.Errorf("%q: must be a percentage above 0%%", s)
	case v.Amount < 0:
		return Value{}, fmt.Errorf("%q: must not be negative", s)
	}
	return v, nil
}

// parse reads a percentage or a quantity of any sign.
func parse(s string) (Value, error) {
	if len(s) > maxText {
		return Value{}, fmt.Errorf("%.*q...: longer than %d bytes", maxText, s, maxText)
	}
	if !strings.HasSuffix(s, "%") {
		amount, format, err := parseQuantity(s)
		return Value{Amount: amount, Format: format}, err
	}
	percent, err := strconv.ParseFloat(strings.TrimRight(s, "%"), 32)
	if err != nil {
		return Value{}, fmt.Errorf("%q: the percentage is not a number", s)
	}
	return Value{Fraction: float32(percent) / 100}, nil
}
