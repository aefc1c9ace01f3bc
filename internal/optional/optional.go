// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package optional reads optional values, which API types have as pointers.
package optional

// First returns the pointer first, or the pointer second if first is nil. The result is nil if both are nil.
func First[T any](first, second *T) *T {
	if first != nil {
		return first
	}
	return second
}

// OrZero returns value. If value is nil, it returns a pointer to a zero T.
func OrZero[T any](value *T) *T { return First(value, new(T)) }

// IsTrue reports whether value is not nil and points to true.
func IsTrue(value *bool) bool { return value != nil && *value }
