// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package quantity parses resource quantities from untrusted text. It limits the exponent, because resource.ParseQuantity takes
// minutes and gigabytes for 1e-2000000000. No other package of this module calls that function.
//
//	q, err := quantity.Parse("1.5Gi")
package quantity

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// The limits of a quantity. No resource has 1e100, and a number of a million digits takes seconds to parse and to compare.
const (
	MaxExponent = 100 // the exponent is between -MaxExponent and MaxExponent
	MaxLength   = 64  // in characters
)

// Parse parses text as a quantity. The error states the cause, but does not contain text.
func Parse(text string) (resource.Quantity, error) {
	if len(text) > MaxLength {
		return resource.Quantity{}, lengthError(len(text))
	}
	if err := Check(text); err != nil {
		return resource.Quantity{}, err
	}
	return resource.ParseQuantity(text)
}

// Check returns an error if parsing number as a quantity would take long, because it is too long or its exponent is too
// large. It returns nil in all other cases, even if number is not a number.
func Check[T string | []byte](number T) error {
	if len(number) == 0 || !strings.ContainsRune("+-.0123456789", rune(number[0])) {
		return nil
	}
	if len(number) > MaxLength {
		return lengthError(len(number))
	}
	text := string(number)
	e := strings.IndexAny(text, "eE")
	if e < 0 {
		return nil
	}
	exponent, err := strconv.Atoi(text[e+1:])
	if errors.Is(err, strconv.ErrSyntax) {
		return nil
	}
	if err != nil || exponent > MaxExponent || exponent < -MaxExponent {
		return fmt.Errorf("the exponent must be between %d and %d", -MaxExponent, MaxExponent)
	}
	return nil
}

// lengthError returns the error for a quantity that is too long. length is its number of characters.
func lengthError(length int) error {
	return fmt.Errorf("%d characters, the limit is %d", length, MaxLength)
}
