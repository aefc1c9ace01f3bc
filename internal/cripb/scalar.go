// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cripb

import (
	"math"
	"time"

	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// mapSlice applies fn to each element of a slice. nil stays nil.
func mapSlice[A, B any](in []A, fn func(A) B) []B {
	if in == nil {
		return nil
	}
	out := make([]B, len(in))
	for i := range in {
		out[i] = fn(in[i])
	}
	return out
}

// mapSlicePtr is mapSlice for a function with a pointer parameter.
func mapSlicePtr[A, B any](in []A, fn func(*A) B) []B {
	if in == nil {
		return nil
	}
	out := make([]B, len(in))
	for i := range in {
		out[i] = fn(&in[i])
	}
	return out
}

// decodeEnum converts an enumeration of a CRI message, whose numbers are those of the struct. Unknown numbers are kept, so
// that they do not become a known value.
func decodeEnum[T ~uint8, P ~int32](number P) T {
	if number < 0 || number > math.MaxUint8 {
		return T(math.MaxUint8)
	}
	return T(number)
}

func encodeTime(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// decodeTime converts nanoseconds since 1970 of a CRI message to a time. Zero and negative values become the zero time,
// because some runtimes send time.Time{}.UnixNano().
func decodeTime(ns int64) time.Time {
	if ns <= 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}

func encodeInt64(v *int64) *v1.Int64Value {
	if v == nil {
		return nil
	}
	return &v1.Int64Value{Value: *v}
}

func decodeInt64(msg *v1.Int64Value) *int64 {
	if msg == nil {
		return nil
	}
	return &msg.Value
}

func encodeUint64(v *uint64) *v1.UInt64Value {
	if v == nil {
		return nil
	}
	return &v1.UInt64Value{Value: *v}
}

func decodeUint64(msg *v1.UInt64Value) *uint64 {
	if msg == nil {
		return nil
	}
	return &msg.Value
}
