// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// maxText is the maximum length of the text of an amount, in bytes.
const maxText = 64

// Amount is an amount of bytes, inodes or process IDs: a number, or a fraction of the capacity. Amounts can be compared with ==. The
// zero value is no amount.
type Amount struct {
	Absolute int64        // used if it is not zero
	Fraction float32      // of the capacity, such as 0.05 for 5%
	Format   AmountFormat // of Absolute, in texts
}

// Of returns the amount for a capacity, at most 2^63-1. Fractions are 32-bit floats, as in the kubelet.
func (a Amount) Of(capacity int64) int64 {
	if a.Absolute != 0 {
		return a.Absolute
	}
	switch amount := float64(capacity) * float64(a.Fraction); {
	case amount >= math.MaxInt64:
		return math.MaxInt64
	case amount <= math.MinInt64:
		return math.MinInt64
	default:
		return int64(amount)
	}
}

// quantity returns the amount for a capacity as a Kubernetes quantity, such as "1500Mi".
func (a Amount) quantity(capacity int64) string {
	format := a.Format
	if a.Absolute == 0 {
		format = BinarySI
	}
	return format.quantity(a.Of(capacity))
}

// String returns the amount as it is written in a configuration.
func (a Amount) String() string {
	if a.Absolute == 0 && a.Fraction != 0 {
		return strconv.FormatFloat(float64(a.Fraction)*100, 'g', 6, 64) + "%"
	}
	return a.Format.quantity(a.Absolute)
}

// ParseAmount parses the amount of a threshold: a positive Kubernetes quantity, or a percentage of the capacity from 0% to 100%. "0%"
// and "100%" disable the threshold, and the result is the zero Amount. The error of a text that is no amount quotes it.
func ParseAmount(s string) (Amount, error) {
	if isDisabled(s) {
		return Amount{}, nil
	}
	a, err := parseSigned(s)
	switch {
	case err != nil:
		return Amount{}, err
	case strings.HasSuffix(s, "%") && !(a.Fraction >= 0 && a.Fraction <= 1):
		return Amount{}, fmt.Errorf("%q: must be between 0%% and 100%%", s)
	case !strings.HasSuffix(s, "%") && a.Absolute <= 0:
		return Amount{}, fmt.Errorf("%q: must be positive", s)
	}
	return a, nil
}

// isDisabled reports whether the text of an amount disables its threshold: it is exactly "0%" or "100%".
func isDisabled(s string) bool { return s == "0%" || s == "100%" }

// parseReclaim parses a minimum reclaim: zero or a positive quantity, or a positive percentage, which may exceed 100%.
func parseReclaim(s string) (Amount, error) {
	a, err := parseSigned(s)
	switch {
	case err != nil:
		return Amount{}, err
	case strings.HasSuffix(s, "%") && !(a.Fraction > 0 && a.Fraction <= math.MaxFloat32):
		return Amount{}, fmt.Errorf("%q: must be a percentage above 0%%", s)
	case a.Absolute < 0:
		return Amount{}, fmt.Errorf("%q: must not be negative", s)
	}
	return a, nil
}

// parseSigned parses a percentage or a quantity, both of any sign.
func parseSigned(s string) (Amount, error) {
	if len(s) > maxText {
		return Amount{}, fmt.Errorf("%.*q...: longer than %d bytes", maxText, s, maxText)
	}
	if !strings.HasSuffix(s, "%") {
		amount, format, err := parseQuantity(s)
		return Amount{Absolute: amount, Format: format}, err
	}
	percent, err := strconv.ParseFloat(strings.TrimRight(s, "%"), 32)
	if err != nil {
		return Amount{}, fmt.Errorf("%q: the percentage is not a number", s)
	}
	return Amount{Fraction: float32(percent) / 100}, nil
}
