// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// total sums up amounts of one resource. isSet distinguishes a total of zero from an absent one. A total must not be copied while
// in use, because a copy would share the big number inside quantity.
type total struct {
	quantity resource.Quantity
	isSet    bool
	entries  int // entries of resource lists that were counted
}

func (t *total) addQuantity(q *resource.Quantity) {
	if t.isSet {
		t.quantity.Add(*q)
	} else {
		t.quantity, t.isSet = q.DeepCopy(), true
	}
}

// addEntry adds the amount of the named resource in list to t. It does nothing if list has no such amount.
func (t *total) addEntry(list corev1.ResourceList, name corev1.ResourceName) {
	if q, ok := list[name]; ok {
		t.entries++
		t.addQuantity(&q)
	}
}

// raiseTo sets t to the quantity if that is greater than t, or if t is not set.
func (t *total) raiseTo(quantity *resource.Quantity) {
	if !t.isSet || quantity.Cmp(t.quantity) > 0 {
		t.quantity, t.isSet = quantity.DeepCopy(), true
	}
}

func (t *total) raiseToEntry(list corev1.ResourceList, name corev1.ResourceName) {
	if q, ok := list[name]; ok {
		t.entries++
		t.raiseTo(&q)
	}
}

// raiseToTotal sets t to the total other if that is greater. The caller must not use other again, because t may share its
// memory.
func (t *total) raiseToTotal(other *total) {
	if other.isSet && (!t.isSet || other.quantity.Cmp(t.quantity) > 0) {
		t.quantity, t.isSet = other.quantity, true
	}
}

// isEqual reports whether a and b are the same amount.
func isEqual(a, b *resource.Quantity) bool {
	x, whole := a.AsInt64()
	y, alsoWhole := b.AsInt64()
	if whole && alsoWhole {
		return x == y
	}
	// An exact comparison of a fraction, such as 1.5Gi, allocates memory.
	if whole != alsoWhole && a.Sign() > 0 && b.Sign() > 0 && Value(a) != Value(b) {
		return false
	}
	return a.Cmp(*b) == 0
}

// Value returns the quantity, rounded up to an integer. If it does not fit into an int64, Value returns the nearest int64.
// The method Value of the quantity would return zero or wrap around.
func Value(quantity *resource.Quantity) int64 {
	if v, ok := quantity.AsInt64(); ok {
		return v
	}
	if quantity.Format == resource.BinarySI && fitsInt64(*quantity) {
		return quantity.Value()
	}
	return scaleSaturated(quantity, 0)
}

// MilliValue returns the quantity in thousandths, rounded up. For CPU these are millicores. If it does not fit into an
// int64, MilliValue returns the nearest int64. The method MilliValue of the quantity would return a wrong number.
func MilliValue(quantity *resource.Quantity) int64 {
	if v, ok := quantity.AsInt64(); ok && v <= math.MaxInt64/1000 && v >= math.MinInt64/1000 {
		return v * 1000
	}
	return scaleSaturated(quantity, resource.Milli)
}

// scaleSaturated returns quantity.ScaledValue(scale). If that does not fit into an int64, it returns the nearest int64,
// while ScaledValue would return zero or wrap around.
func scaleSaturated(quantity *resource.Quantity, scale resource.Scale) int64 {
	if quantity.Cmp(*resource.NewScaledQuantity(math.MaxInt64, scale)) >= 0 {
		return math.MaxInt64
	}
	if quantity.Cmp(*resource.NewScaledQuantity(math.MinInt64, scale)) <= 0 {
		return math.MinInt64
	}
	return quantity.ScaledValue(scale)
}

// fitsInt64 reports whether the quantity certainly fits into an int64.
func fitsInt64(quantity resource.Quantity) bool {
	// An exact comparison of a binary fraction allocates memory.
	d := quantity.AsDec()
	return d.Scale() >= 0 && d.UnscaledBig().BitLen()-3*int(d.Scale()) < 63 // each decimal is more than three bits
}

// addSaturated returns a+b, limited to the range of an int64.
func addSaturated(a, b int64) int64 {
	switch c := a + b; {
	case a > 0 && b > 0 && c < 0:
		return math.MaxInt64
	case a < 0 && b < 0 && c >= 0:
		return math.MinInt64
	default:
		return c
	}
}
