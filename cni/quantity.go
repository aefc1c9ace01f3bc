// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"errors"
	"math/big"
	"regexp"
	"strconv"
)

// quantity matches a Kubernetes quantity: a number and a suffix or an exponent.
var quantity = regexp.MustCompile(`^([+-]?)([0-9]+\.?[0-9]*|\.[0-9]+)(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?[0-9]+))?$`)

const (
	// maxQuantity is the most bytes of a quantity that are looked at.
	maxQuantity = 64
	// maxPower is the largest exponent that makes a difference: no number of so many digits is within 64 bits then.
	maxPower = 100
)

var errQuantity = errors.New("it is no quantity")

// parseQuantity returns the value of a quantity as the whole number above it. What needs more than 63 bits is the largest
// number. It does what resource.Quantity does, which brings more packages than this package may have.
func parseQuantity(s string) (int64, error) {
	if len(s) > maxQuantity {
		return 0, errQuantity
	}
	m := quantity.FindStringSubmatch(s)
	if m == nil {
		return 0, errQuantity
	}
	value, ok := new(big.Rat).SetString(m[1] + m[2])
	if !ok {
		return 0, errQuantity
	}
	return ceiling(value.Mul(value, factor(m[3], m[4]))), nil
}

// factor is what a suffix or an exponent stands for.
func factor(suffix, exponent string) *big.Rat {
	const decimal, binary = "kMGTPE", "KMGTPE"
	power := 0
	switch {
	case exponent != "":
		power, _ = strconv.Atoi(exponent) // the largest number where it is larger
		power = max(-maxPower, min(maxPower, power))
	case len(suffix) == 2:
		shift := 10 * uint(1+indexOf(binary, suffix[0]))
		return new(big.Rat).SetInt(new(big.Int).Lsh(big.NewInt(1), shift))
	case suffix == "n":
		power = -9
	case suffix == "u":
		power = -6
	case suffix == "m":
		power = -3
	case suffix != "":
		power = 3 * (1 + indexOf(decimal, suffix[0]))
	}
	ten := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(power, -power))), nil)
	if power < 0 {
		return new(big.Rat).SetFrac(big.NewInt(1), ten)
	}
	return new(big.Rat).SetInt(ten)
}

func indexOf(s string, c byte) int {
	for i := range len(s) {
		if s[i] == c {
			return i
		}
	}
	return 0
}

// ceiling returns the whole number at or above a number, away from zero, within 64 bits.
func ceiling(r *big.Rat) int64 {
	whole, rest := new(big.Int).QuoRem(r.Num(), r.Denom(), new(big.Int))
	if sign := rest.Sign(); sign != 0 {
		whole.Add(whole, big.NewInt(int64(sign)))
	}
	if !whole.IsInt64() {
		return (1<<63 - 1) * int64(whole.Sign())
	}
	return whole.Int64()
}
