// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cripb

import (
	"math"
	"time"

	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// mapSlice applies fn to each element of slice and returns the results. A nil slice becomes nil.
func mapSlice[A, B any](slice []A, fn func(A) B) []B {
	if slice == nil {
		return nil
	}
	out := make([]B, len(slice))
	for i := range slice {
		out[i] = fn(slice[i])
	}
	return out
}

// mapSlicePtr applies fn to a pointer to each element of slice and returns the results. A nil slice becomes nil.
func mapSlicePtr[A, B any](slice []A, fn func(*A) B) []B {
	if slice == nil {
		return nil
	}
	out := make([]B, len(slice))
	for i := range slice {
		out[i] = fn(&slice[i])
	}
	return out
}

// decodeEnum converts an enumeration value in a CRI message to the type T. Unknown numbers never become defined values.
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

// decodeTime converts nanoseconds since 1970 to a time. Zero and negative values become the zero time, because some runtimes
// send time.Time{}.UnixNano(), which is negative.
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
