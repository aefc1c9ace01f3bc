// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// total is a quantity that knows whether anything went into it: absent and zero are not the same. It owns its
// quantity, whose big part a plain copy would share.
type total struct {
	q     resource.Quantity
	set   bool
	found int // entries of lists that state the resource
}

func (t *total) add(q *resource.Quantity) {
	if t.set {
		t.q.Add(*q)
	} else {
		t.q, t.set = q.DeepCopy(), true
	}
}

// addFrom adds what a list has of a resource.
func (t *total) addFrom(list corev1.ResourceList, name corev1.ResourceName) {
	if q, ok := list[name]; ok {
		t.found++
		t.add(&q)
	}
}

// raise makes t the greater of the two. An absent total is less than any other.
func (t *total) raise(q *resource.Quantity) {
	if !t.set || q.Cmp(t.q) > 0 {
		t.q, t.set = q.DeepCopy(), true
	}
}

func (t *total) raiseFrom(list corev1.ResourceList, name corev1.ResourceName) {
	if q, ok := list[name]; ok {
		t.found++
		t.raise(&q)
	}
}

// raiseTotal is raise with a total that is not used any more: what it owns changes hands.
func (t *total) raiseTotal(u *total) {
	if u.set && (!t.set || u.q.Cmp(t.q) > 0) {
		t.q, t.set = u.q, true
	}
}

// equal compares by value, whatever the units. Where one of the two is a fraction, such as 1.5Gi, both are rounded up
// first: amounts that already differ then need no arithmetic on big numbers, which would allocate.
func equal(a, b *resource.Quantity) bool {
	x, whole := a.AsInt64()
	y, alsoWhole := b.AsInt64()
	if whole && alsoWhole {
		return x == y
	}
	if whole != alsoWhole && a.Sign() > 0 && b.Sign() > 0 && Value(a) != Value(b) {
		return false
	}
	return a.Cmp(*b) == 0
}

// Value returns q rounded up to whole units, and the largest int64 where it is more. The method of that name returns zero
// or wraps around there.
func Value(q *resource.Quantity) int64 {
	if v, ok := q.AsInt64(); ok {
		return v
	}
	if q.Format == resource.BinarySI && fits(*q) {
		return q.Value()
	}
	return scaled(q, 0)
}

// MilliValue returns q in millis (of CPU, millicores), rounded up, and the largest int64 where it is more. The method of that name returns
// another number there, even one below zero.
func MilliValue(q *resource.Quantity) int64 {
	if v, ok := q.AsInt64(); ok && v <= math.MaxInt64/1000 && v >= math.MinInt64/1000 {
		return v * 1000
	}
	return scaled(q, resource.Milli)
}

// scaled is ScaledValue within the bounds of an int64, where ScaledValue itself returns zero or wraps around.
func scaled(q *resource.Quantity, scale resource.Scale) int64 {
	if q.Cmp(*resource.NewScaledQuantity(math.MaxInt64, scale)) >= 0 {
		return math.MaxInt64
	}
	if q.Cmp(*resource.NewScaledQuantity(math.MinInt64, scale)) <= 0 {
		return math.MinInt64
	}
	return q.ScaledValue(scale)
}

// fits says that an amount is within the bounds of an int64, if that is easily seen. A fraction of a binary unit is
// kept as a big number, which costs an allocation to compare and none to look at.
func fits(q resource.Quantity) bool {
	d := q.AsDec()
	return d.Scale() >= 0 && d.UnscaledBig().BitLen()-3*int(d.Scale()) < 63 // each decimal is more than three bits
}

// sum adds within the bounds of an int64.
func sum(a, b int64) int64 {
	switch c := a + b; {
	case a > 0 && b > 0 && c < 0:
		return math.MaxInt64
	case a < 0 && b < 0 && c >= 0:
		return math.MinInt64
	default:
		return c
	}
}
