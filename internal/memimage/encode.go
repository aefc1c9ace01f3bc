// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package memimage

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"slices"
	"time"
	"unsafe"
)

// Marks before a value that may be absent or shared.
const (
	markZero   = iota // nil, or a struct whose fields are all zero
	markNew           // the contents follow
	markShared        // the number of an earlier object follows
)

// object is memory that several pointers, slices or maps may share.
type object struct {
	at    unsafe.Pointer
	typ   reflect.Type
	count int // elements of a slice
}

// span is the memory of an object.
type span struct {
	begin, end uintptr
	typ        reflect.Type
}

// encoder appends values to out.
type encoder struct {
	out       []byte
	keepTypes map[reflect.Type]bool
	kept      []any
	keptAt    map[any]uint64 // index in kept, of pointers
	objects   map[object]uint64
	texts     map[string]uint64
	times     map[time.Time]uint64
	spans     []span
}

func newEncoder(keepTypes map[reflect.Type]bool) *encoder {
	return &encoder{keepTypes: keepTypes, keptAt: map[any]uint64{}, objects: map[object]uint64{}, texts: map[string]uint64{}, times: map[time.Time]uint64{}}
}

// addObject numbers the object at the address at, whose memory has size bytes.
func (e *encoder) addObject(at unsafe.Pointer, typ reflect.Type, size uintptr) {
	e.addShared(object{at: at, typ: typ}, size)
}

func (e *encoder) addShared(o object, size uintptr) {
	e.objects[o] = uint64(len(e.objects))
	if size > 0 {
		e.spans = append(e.spans, span{begin: uintptr(o.at), end: uintptr(o.at) + size, typ: o.typ})
	}
}

// checkOverlaps returns an error if two different objects share memory.
func (e *encoder) checkOverlaps() error {
	slices.SortFunc(e.spans, func(a, b span) int { return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end)) })
	for i := 1; i < len(e.spans); i++ {
		if a, b := e.spans[i-1], e.spans[i]; b.begin < a.end {
			return fmt.Errorf("a pointer to %v and one to %v share memory", a.typ, b.typ)
		}
	}
	return nil
}

func (e *encoder) appendUint(n uint64) { e.out = binary.AppendUvarint(e.out, n) }

// encodeValue appends the value v, which must be addressable.
func (e *encoder) encodeValue(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		n := uint64(0)
		if v.Bool() {
			n = 1
		}
		e.appendUint(n)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		e.out = binary.AppendVarint(e.out, v.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		e.appendUint(v.Uint())
	case reflect.Float32, reflect.Float64:
		e.appendUint(math.Float64bits(v.Float()))
	case reflect.Complex64, reflect.Complex128:
		e.appendUint(math.Float64bits(real(v.Complex())))
		e.appendUint(math.Float64bits(imag(v.Complex())))
	case reflect.String:
		e.encodeText(v.String())
	case reflect.Struct:
		e.encodeStruct(v)
	case reflect.Array:
		for i := range v.Len() {
			e.encodeValue(v.Index(i))
		}
	case reflect.Slice:
		e.encodeSlice(v)
	case reflect.Map:
		e.encodeMap(v)
	case reflect.Pointer:
		e.encodePointer(v)
	default: // functions, channels, interfaces and unsafe pointers
		e.keepValue(v)
	}
}

// encodeText appends a string, or the number of an equal string.
func (e *encoder) encodeText(s string) {
	if number, found := e.texts[s]; found {
		e.appendUint(number + 1)
		return
	}
	e.texts[s] = uint64(len(e.texts))
	e.appendUint(0)
	e.appendUint(uint64(len(s)))
	e.out = append(e.out, s...)
}

// encodeStruct appends the fields of a struct.
func (e *encoder) encodeStruct(v reflect.Value) {
	if v.IsZero() {
		e.appendUint(markZero)
		return
	}
	if t, ok := addressOf(v).(*time.Time); ok {
		if number, found := e.times[*t]; found {
			e.appendUint(markShared)
			e.appendUint(number)
			return
		}
		e.times[*t] = uint64(len(e.times))
	}
	e.appendUint(markNew)
	for i := range v.NumField() {
		if field := fieldOf(v, i); isCanonical(v.Type()) {
			e.keepValue(field)
		} else {
			e.encodeValue(field)
		}
	}
}

// isCanonical reports whether values of the struct type t are compared by the addresses in their fields: it is a unique.Handle, as in netip.Addr.
func isCanonical(t reflect.Type) bool { return t.PkgPath() == "unique" }

// addressOf returns a pointer to v.
func addressOf(v reflect.Value) any { return v.Addr().Interface() }

// fieldOf returns the field of a struct, also if it is unexported.
func fieldOf(v reflect.Value, i int) reflect.Value {
	field := v.Field(i)
	return reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem()
}

// isShared appends the number of the object if it was encoded before, and reports whether it was. Otherwise it numbers the object.
func (e *encoder) isShared(o object, size uintptr) bool {
	if number, found := e.objects[o]; found {
		e.appendUint(markShared)
		e.appendUint(number)
		return true
	}
	e.addShared(o, size)
	e.appendUint(markNew)
	return false
}

// encodeSlice appends the elements of a slice.
func (e *encoder) encodeSlice(v reflect.Value) {
	size := uintptr(v.Len()) * v.Type().Elem().Size()
	if v.IsNil() {
		e.appendUint(markZero)
		return
	}
	if size == 0 {
		e.appendUint(markNew)
		e.objects[object{count: -1 - len(e.objects)}] = uint64(len(e.objects)) // a number that nothing refers to
	} else if e.isShared(object{v.UnsafePointer(), v.Type(), v.Len()}, size) {
		return
	}
	e.appendUint(uint64(v.Len()))
	for i := range v.Len() {
		e.encodeValue(v.Index(i))
	}
}

// encodeMap appends the entries of a map.
func (e *encoder) encodeMap(v reflect.Value) {
	if v.IsNil() {
		e.appendUint(markZero)
		return
	}
	if e.isShared(object{at: v.UnsafePointer(), typ: v.Type()}, 0) {
		return
	}
	e.appendUint(uint64(v.Len()))
	for entries := v.MapRange(); entries.Next(); {
		for _, part := range []reflect.Value{entries.Key(), entries.Value()} {
			copied := reflect.New(part.Type()).Elem()
			copied.Set(part)
			e.encodeValue(copied)
		}
	}
}

// encodePointer appends the value at which a pointer points.
func (e *encoder) encodePointer(v reflect.Value) {
	switch t := v.Type(); {
	case v.IsNil():
		e.appendUint(markZero)
	case e.keepTypes[t]:
		e.keepValue(v)
	case !e.isShared(object{at: v.UnsafePointer(), typ: t.Elem()}, t.Elem().Size()):
		e.encodeValue(v.Elem())
	}
}

// keepValue appends the number of a value that stays as it is.
func (e *encoder) keepValue(v reflect.Value) {
	if v.IsZero() {
		e.appendUint(markZero)
		return
	}
	value := v.Interface()
	number, found := uint64(0), false
	if reflect.TypeOf(value).Kind() == reflect.Pointer {
		number, found = e.keptAt[value]
	}
	if !found {
		number = uint64(len(e.kept))
		e.kept = append(e.kept, value)
		if reflect.TypeOf(value).Kind() == reflect.Pointer {
			e.keptAt[value] = number
		}
	}
	e.appendUint(number + 1)
}
