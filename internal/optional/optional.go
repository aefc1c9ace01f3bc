// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package optional reads optional values, which the API has as pointers.
package optional

// First returns the first of two values that is set, or nil.
func First[T any](a, b *T) *T {
	if a != nil {
		return a
	}
	return b
}

// OrZero returns a value to read from, which is the zero value where none is set.
func OrZero[T any](p *T) *T { return First(p, new(T)) }

// IsTrue reports whether a value is set and true.
func IsTrue(b *bool) bool { return b != nil && *b }
