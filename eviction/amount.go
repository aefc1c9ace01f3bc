// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// maxTextLength is the maximum length of the text of an amount in bytes.
const maxTextLength = 64

// Amount is a number of bytes, inodes or process IDs, or a fraction of the capacity. Amounts are comparable with ==. The zero
// value means no amount.
type Amount struct {
	Absolute int64        // used if nonzero
	Fraction float32      // fraction of the capacity, for example 0.05 for 5%
	Format   AmountFormat // text format of Absolute
}

// Of returns the amount as a number: Absolute if it is not zero, otherwise the Fraction of capacity. The Fraction has the
// precision of a float32, as in the kubelet. The result is limited to the range of int64.
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

// formatFor returns a as a Kubernetes quantity, for example "1500Mi". It converts a fraction to an amount of capacity; see
// [Amount.Of].
func (a Amount) formatFor(capacity int64) string {
	format := a.Format
	if a.Absolute == 0 {
		format = BinarySI
	}
	return format.formatQuantity(a.Of(capacity))
}

// String returns the amount as in a kubelet configuration, for example "100Mi" or "10%".
func (a Amount) String() string {
	if a.Absolute == 0 && a.Fraction != 0 {
		return strconv.FormatFloat(float64(a.Fraction)*100, 'g', 6, 64) + "%"
	}
	return a.Format.formatQuantity(a.Absolute)
}

// ParseAmount parses the amount of a threshold. Valid amounts are positive Kubernetes quantities, and percentages of the
// capacity from 0% to 100%. For "0%" and "100%", which disable a threshold, it returns the zero Amount.
func ParseAmount(text string) (Amount, error) {
	if isDisabled(text) {
		return Amount{}, nil
	}
	a, err := parseSigned(text)
	switch {
	case err != nil:
		return Amount{}, err
	case strings.HasSuffix(text, "%") && !(a.Fraction >= 0 && a.Fraction <= 1):
		return Amount{}, fmt.Errorf("%q: must be between 0%% and 100%%", text)
	case !strings.HasSuffix(text, "%") && a.Absolute <= 0:
		return Amount{}, fmt.Errorf("%q: must be positive", text)
	}
	return a, nil
}

// isDisabled reports whether text is exactly "0%" or "100%", which disables a threshold.
func isDisabled(text string) bool { return text == "0%" || text == "100%" }

// parseReclaim parses a minimum reclaim: a quantity that is not negative, or a percentage above 0%, perhaps above 100%.
func parseReclaim(text string) (Amount, error) {
	a, err := parseSigned(text)
	switch {
	case err != nil:
		return Amount{}, err
	case strings.HasSuffix(text, "%") && !(a.Fraction > 0 && a.Fraction <= math.MaxFloat32):
		return Amount{}, fmt.Errorf("%q: must be a percentage above 0%%", text)
	case a.Absolute < 0:
		return Amount{}, fmt.Errorf("%q: must not be negative", text)
	}
	return a, nil
}

// parseSigned parses a percentage or a quantity of any sign.
func parseSigned(text string) (Amount, error) {
	if len(text) > maxTextLength {
		return Amount{}, fmt.Errorf("%.*q...: longer than %d bytes", maxTextLength, text, maxTextLength)
	}
	if !strings.HasSuffix(text, "%") {
		amount, format, err := parseQuantity(text)
		return Amount{Absolute: amount, Format: format}, err
	}
	percent, err := strconv.ParseFloat(strings.TrimRight(text, "%"), 32)
	if err != nil {
		return Amount{}, fmt.Errorf("%q: the percentage is not a number", text)
	}
	return Amount{Fraction: float32(percent) / 100}, nil
}
