// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// AmountFormat is the suffix notation of a quantity.
type AmountFormat uint8

// The formats of an [Amount]. Source: Format in k8s.io/apimachinery/pkg/api/resource.
const (
	DecimalSI       AmountFormat = iota // powers of 1000: 12k
	BinarySI                            // powers of 1024: 12Ki
	DecimalExponent                     // powers of 1000: 12e3
)

// Suffixes of the powers of 1000 and 1024, by exponent.
const (
	decimalSuffixes = "kMGTPE"
	binarySuffixes  = "KMGTPE"
)

// maxExponent is the maximum decimal exponent of a quantity.
const maxExponent = 1000

// formatQuantity returns the amount as a Kubernetes quantity, with the largest suffix that needs no fraction.
func (f AmountFormat) formatQuantity(amount int64) string {
	// as in Kubernetes, an amount below 1024 has a decimal suffix even in BinarySI
	step, suffixes := int64(1000), decimalSuffixes
	if f == BinarySI && (amount >= 1024 || amount <= -1024) {
		step, suffixes = 1024, binarySuffixes
	}
	n := 0
	for ; amount != 0 && amount%step == 0 && n < len(suffixes); n++ {
		amount /= step
	}
	text := strconv.FormatInt(amount, 10)
	switch {
	case n == 0:
		return text
	case f == DecimalExponent:
		return text + "e" + strconv.Itoa(3*n)
	case step == 1024:
		return text + suffixes[n-1:n] + "i"
	default:
		return text + suffixes[n-1:n]
	}
}

// parseQuantity parses a Kubernetes quantity, rounds it away from zero, and limits it to the range of int64.
func parseQuantity(text string) (value int64, format AmountFormat, err error) {
	rest := strings.TrimPrefix(text, "+")
	negative := strings.HasPrefix(text, "-")
	if negative {
		rest = text[1:]
	}
	whole, rest := cutDigits(rest)
	fraction := ""
	if after, ok := strings.CutPrefix(rest, "."); ok {
		fraction, rest = cutDigits(after)
	}
	if whole == "" && fraction == "" {
		return 0, 0, fmt.Errorf("%q: not a quantity such as 100Mi or a percentage such as 10%%", text)
	}
	factor, exponent, format, ok := parseSuffix(rest)
	if !ok {
		return 0, 0, fmt.Errorf("%q: %q is not a suffix of a quantity", text, rest)
	}
	amount, _ := new(big.Int).SetString(whole+fraction, 10)
	amount.Mul(amount, big.NewInt(factor))
	scaleByPowerOfTen(amount, exponent-len(fraction))
	if negative {
		amount.Neg(amount)
	}
	return clampInt64(amount), format, nil
}

// cutDigits splits text after its leading decimal digits.
func cutDigits(text string) (number, rest string) {
	rest = strings.TrimLeft(text, "0123456789")
	return text[:len(text)-len(rest)], rest
}

// parseSuffix parses a quantity suffix such as "Mi", which multiplies the number by factor and by 10^exponent.
func parseSuffix(text string) (factor int64, exponent int, format AmountFormat, ok bool) {
	switch text {
	case "":
		return 1, 0, DecimalSI, true
	case "n":
		return 1, -9, DecimalSI, true
	case "u":
		return 1, -6, DecimalSI, true
	case "m":
		return 1, -3, DecimalSI, true
	}
	if n := strings.Index(decimalSuffixes, text); n >= 0 && len(text) == 1 {
		return 1, 3 * (n + 1), DecimalSI, true
	}
	if n := strings.Index(binarySuffixes, text[:1]); n >= 0 && text[1:] == "i" {
		return 1 << (10 * (n + 1)), 0, BinarySI, true
	}
	if text[0] != 'e' && text[0] != 'E' {
		return 0, 0, 0, false
	}
	exponent, err := strconv.Atoi(text[1:])
	return 1, exponent, DecimalExponent, err == nil && exponent >= -maxExponent && exponent <= maxExponent
}

// scaleByPowerOfTen multiplies amount by 10^exponent, and stores the result in amount. It rounds up. The amount must not be
// negative.
func scaleByPowerOfTen(amount *big.Int, exponent int) {
	power := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(exponent, -exponent))), nil)
	if exponent >= 0 {
		amount.Mul(amount, power)
		return
	}
	amount.Add(amount, power).Sub(amount, big.NewInt(1)).Div(amount, power)
}

// clampInt64 returns the nearest int64.
func clampInt64(n *big.Int) int64 {
	switch {
	case n.IsInt64():
		return n.Int64()
	case n.Sign() < 0:
		return math.MinInt64
	default:
		return math.MaxInt64
	}
}
