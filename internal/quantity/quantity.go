// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package quantity parses amounts of resources from text whose author is not trusted. It is the only package of this module that calls
// resource.ParseQuantity, which takes minutes and gigabytes for 1e-2000000000.
package quantity

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// The limits of a quantity. 1e100 is more than any resource has, and a number of some million digits takes seconds to
// parse, and again whenever it is compared.
const (
	MaxExponent = 100 // and the least is -MaxExponent
	MaxLength   = 64  // characters
)

// Parse returns the quantity of a text. An error says what is wrong and quotes nothing.
func Parse(text string) (resource.Quantity, error) {
	if len(text) > MaxLength {
		return resource.Quantity{}, lengthError(len(text))
	}
	if err := Check(text); err != nil {
		return resource.Quantity{}, err
	}
	return resource.ParseQuantity(text)
}

// Check returns an error for a number that takes long to parse, and nil for all other texts, also for those that are no number.
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

func lengthError(length int) error {
	return fmt.Errorf("%d characters, the limit is %d", length, MaxLength)
}
