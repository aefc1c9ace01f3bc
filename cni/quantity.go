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
	// maxQuantity is the maximum length of a parsed quantity in bytes.
	maxQuantity = 64
	// maxPower is the exponent beyond which every number of maxQuantity digits exceeds 64 bits or rounds to one.
	maxPower = 100
)

var errQuantity = errors.New("not a quantity")

// parseQuantity parses a Kubernetes quantity and rounds it up to a whole number, at most the largest int64.
func parseQuantity(s string) (int64, error) {
	if len(s) > maxQuantity {
		return 0, errQuantity
	}
	// resource.Quantity would add dependencies to the package
	m := quantity.FindStringSubmatch(s)
	if m == nil {
		return 0, errQuantity
	}
	value, ok := new(big.Rat).SetString(m[1] + m[2])
	if !ok {
		return 0, errQuantity
	}
	return roundUp(value.Mul(value, parseFactor(m[3], m[4]))), nil
}

// parseFactor returns the factor of a quantity suffix such as "Ki" or of a decimal exponent; one if both are empty.
func parseFactor(suffix, exponent string) *big.Rat {
	const decimal, binary = "kMGTPE", "KMGTPE"
	power := 0
	switch {
	case exponent != "":
		power, _ = strconv.Atoi(exponent) // the largest number where it is larger
		power = max(-maxPower, min(maxPower, power))
	case len(suffix) == 2:
		shift := 10 * uint(1+indexOfByte(binary, suffix[0]))
		return new(big.Rat).SetInt(new(big.Int).Lsh(big.NewInt(1), shift))
	case suffix == "n":
		power = -9
	case suffix == "u":
		power = -6
	case suffix == "m":
		power = -3
	case suffix != "":
		power = 3 * (1 + indexOfByte(decimal, suffix[0]))
	}
	ten := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(power, -power))), nil)
	if power < 0 {
		return new(big.Rat).SetFrac(big.NewInt(1), ten)
	}
	return new(big.Rat).SetInt(ten)
}

func indexOfByte(s string, c byte) int {
	for i := range len(s) {
		if s[i] == c {
			return i
		}
	}
	return 0
}

// roundUp rounds a number away from zero to a whole number, at most the largest int64, with its sign.
func roundUp(number *big.Rat) int64 {
	whole, rest := new(big.Int).QuoRem(number.Num(), number.Denom(), new(big.Int))
	if sign := rest.Sign(); sign != 0 {
		whole.Add(whole, big.NewInt(int64(sign)))
	}
	if !whole.IsInt64() {
		return (1<<63 - 1) * int64(whole.Sign())
	}
	return whole.Int64()
}
