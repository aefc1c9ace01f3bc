// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podhash

import (
	"bufio"
	"cmp"
	"hash"
	"hash/fnv"
	"io"
	"reflect"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// bufferSize is the number of bytes that Dump collects before it writes them.
const bufferSize = 4096

// New returns an FNV-128a hash to which the dump of the pod is written. The pod must have its defaults, and quantities must be
// as they were decoded: [resource.Quantity] caches its text, which the dump contains. Source: pkg/util/hash/hash.go.
//
// [resource.Quantity]: https://pkg.go.dev/k8s.io/apimachinery/pkg/api/resource#Quantity
func New(pod *corev1.Pod) hash.Hash {
	h := fnv.New128a()
	_ = Dump(h, pod) // a hash returns no error
	return h
}

// Dump writes pod to w as text, in the format from which the kubelet computes a hash of the pod. The text begins with
// "(*core.Pod){TypeMeta:". The error is the write error of w. Source: ForHash in k8s.io/utils/dump/dump.go.
func Dump(w io.Writer, pod *corev1.Pod) error {
	_ = time.Local.String() // loads the time zone, which is part of a time
	d := &dump{out: bufio.NewWriterSize(w, bufferSize)}
	d.printTyped(reflect.ValueOf(pod))
	return d.out.Flush()
}

// dump prints values. Its writer keeps the first error until it is flushed.
type dump struct {
	out   *bufio.Writer
	depth int // number of structs, lists and maps around the current value

	zone      uintptr // address of the time zone that was printed last; zero: none, or a pointer at zoneDepth or less has followed
	zoneDepth int     // depth of the pointer to that time zone
}

func (d *dump) writeText(s string) { _, _ = d.out.WriteString(s) }

// printTyped prints the value, preceded by its type in parentheses.
func (d *dump) printTyped(v reflect.Value) {
	d.writeText("(")
	d.printType(v.Type())
	d.writeText(")")
	d.printValue(v)
}

// printValue prints the value without its type.
func (d *dump) printValue(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		d.printPointer(v)
	case reflect.Struct:
		d.depth++
		d.printStruct(v)
		d.depth--
	case reflect.Map:
		d.depth++
		d.printMap(v)
		d.depth--
	case reflect.Slice, reflect.Array:
		d.depth++
		d.printList(v)
		d.depth--
	default:
		d.printScalar(v)
	}
}

// printPointer prints the value that v points to.
//
// The kubelet's printer takes a second pointer to a target for a cycle. It does so if the first pointer had a lower depth, and no other pointer of
// that depth or less was printed since. In a decoded pod, only times share a target: the local time zone.
func (d *dump) printPointer(v reflect.Value) {
	if d.zone != 0 && d.zoneDepth >= d.depth {
		d.zone = 0
	}
	switch {
	case v.IsNil():
		d.writeText("<nil>")
		return
	case v.Type() != reflect.TypeFor[*time.Location]():
	case v.Pointer() == d.zone:
		d.writeText("<shown>")
		return
	default:
		d.zone, d.zoneDepth = v.Pointer(), d.depth
	}
	d.printValue(v.Elem())
}

func (d *dump) printScalar(v reflect.Value) {
	switch {
	case v.Kind() == reflect.String:
		d.writeText(v.String())
	case v.Kind() == reflect.Bool:
		d.writeText(strconv.FormatBool(v.Bool()))
	case v.CanInt():
		_, _ = d.out.Write(strconv.AppendInt(d.out.AvailableBuffer(), v.Int(), 10))
	case v.CanUint():
		_, _ = d.out.Write(strconv.AppendUint(d.out.AvailableBuffer(), v.Uint(), 10))
	default:
		// Pods have no other kind of value; a test checks the types.
		panic("podhash: no format for a value of kind " + v.Kind().String())
	}
}

// printStruct prints all fields, exported or not, as {NAME:(TYPE)VALUE NAME:(TYPE)VALUE}.
func (d *dump) printStruct(v reflect.Value) {
	d.writeText("{")
	t := v.Type()
	for i := range t.NumField() {
		if i > 0 {
			d.writeText(" ")
		}
		d.writeText(t.Field(i).Name)
		d.writeText(":")
		d.printTyped(v.Field(i))
	}
	d.writeText("}")
}

// printList prints a slice or an array as [VALUE VALUE]. A nil slice differs from an empty one.
func (d *dump) printList(v reflect.Value) {
	if v.Kind() == reflect.Slice && v.IsNil() {
		d.writeText("<nil>")
		return
	}
	d.writeText("[")
	for i := range v.Len() {
		if i > 0 {
			d.writeText(" ")
		}
		d.printValue(v.Index(i))
	}
	d.writeText("]")
}

// printMap prints a map with string keys as map[KEY:VALUE KEY:VALUE], sorted by key. A nil map differs from an empty one.
func (d *dump) printMap(v reflect.Value) {
	if v.IsNil() {
		d.writeText("<nil>")
		return
	}
	d.writeText("map[")
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return cmp.Compare(a.String(), b.String()) })
	for i, key := range keys {
		if i > 0 {
			d.writeText(" ")
		}
		d.writeText(key.String())
		d.writeText(":")
		d.printValue(v.MapIndex(key))
	}
	d.writeText("]")
}

// printType prints a type as package reflect does, except that the package of corev1 types is "core".
func (d *dump) printType(t reflect.Type) {
	switch {
	case t.PkgPath() == corePath():
		d.writeText("core.")
		d.writeText(t.Name())
	case t.Name() != "":
		d.writeText(t.String())
	case t.Kind() == reflect.Pointer:
		d.writeText("*")
		d.printType(t.Elem())
	case t.Kind() == reflect.Slice:
		d.writeText("[]")
		d.printType(t.Elem())
	case t.Kind() == reflect.Map:
		d.writeText("map[")
		d.printType(t.Key())
		d.writeText("]")
		d.printType(t.Elem())
	default:
		d.writeText(t.String())
	}
}

// corePath returns the import path of the corev1 types.
func corePath() string { return reflect.TypeFor[corev1.Pod]().PkgPath() }
