// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cripb

import (
	"math"
	"time"

	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// each translates a slice. Nil stays nil.
func each[A, B any](in []A, f func(A) B) []B {
	if in == nil {
		return nil
	}
	out := make([]B, len(in))
	for i := range in {
		out[i] = f(in[i])
	}
	return out
}

// eachPtr is each for a function that reads its argument in place.
func eachPtr[A, B any](in []A, f func(*A) B) []B {
	if in == nil {
		return nil
	}
	out := make([]B, len(in))
	for i := range in {
		out[i] = f(&in[i])
	}
	return out
}

// enum reads an enumeration whose numbers are the same on both sides. A number that has no name stays a number
// without a name, so that no unknown value turns into a known one.
func enum[T ~uint8, P ~int32](p P) T {
	if p < 0 || p > math.MaxUint8 {
		return T(math.MaxUint8)
	}
	return T(p)
}

func encodeTime(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// decodeTime reads anything before 1970 as not set: it is what time.Time{}.UnixNano() looks like on the wire.
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

func decodeInt64(v *v1.Int64Value) *int64 {
	if v == nil {
		return nil
	}
	return &v.Value
}

func encodeUint64(v *uint64) *v1.UInt64Value {
	if v == nil {
		return nil
	}
	return &v1.UInt64Value{Value: *v}
}

func decodeUint64(v *v1.UInt64Value) *uint64 {
	if v == nil {
		return nil
	}
	return &v.Value
}
