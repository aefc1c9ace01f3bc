// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package optional reads optional values, which API types have as pointers.
package optional

// First returns first if it is not nil, else second, which may be nil.
func First[T any](first, second *T) *T {
	if first != nil {
		return first
	}
	return second
}

// OrZero returns value, or a pointer to a zero value if it is nil.
func OrZero[T any](value *T) *T { return First(value, new(T)) }

// IsTrue reports whether value is set and true.
func IsTrue(value *bool) bool { return value != nil && *value }
