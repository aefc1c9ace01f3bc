// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package memimage

import (
	"encoding/binary"
	"math"
	"reflect"
	"time"
)

// decoder reads the values that an encoder has appended.
type decoder struct {
	in        []byte
	keepTypes map[reflect.Type]bool
	kept      []any
	objects   []reflect.Value // pointers, slices and maps by number
	texts     []string
	times     []time.Time
}

func (d *decoder) readUint() uint64 {
	n, size := binary.Uvarint(d.in)
	d.in = d.in[size:]
	return n
}

func (d *decoder) readInt() int64 {
	n, size := binary.Varint(d.in)
	d.in = d.in[size:]
	return n
}

// decodeValue sets v, which is addressable and zero, to the next value.
func (d *decoder) decodeValue(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(d.readUint() != 0)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(d.readInt())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		v.SetUint(d.readUint())
	case reflect.Float32, reflect.Float64:
		v.SetFloat(math.Float64frombits(d.readUint()))
	case reflect.Complex64, reflect.Complex128:
		re := math.Float64frombits(d.readUint())
		v.SetComplex(complex(re, math.Float64frombits(d.readUint())))
	case reflect.String:
		v.SetString(d.decodeText())
	case reflect.Struct:
		d.decodeStruct(v)
	case reflect.Array:
		for i := range v.Len() {
			d.decodeValue(v.Index(i))
		}
	case reflect.Slice:
		d.decodeSlice(v)
	case reflect.Map:
		d.decodeMap(v)
	case reflect.Pointer:
		d.decodePointer(v)
	default:
		d.decodeKept(v)
	}
}

func (d *decoder) decodeText() string {
	if number := d.readUint(); number > 0 {
		return d.texts[number-1]
	}
	length := d.readUint()
	s := string(d.in[:length])
	d.in, d.texts = d.in[length:], append(d.texts, s)
	return s
}

func (d *decoder) decodeStruct(v reflect.Value) {
	t, isTime := addressOf(v).(*time.Time)
	switch d.readUint() {
	case markZero:
		return
	case markShared:
		*t = d.times[d.readUint()]
		return
	}
	for i := range v.NumField() {
		if field := fieldOf(v, i); isCanonical(v.Type()) {
			d.decodeKept(field)
		} else {
			d.decodeValue(field)
		}
	}
	if isTime {
		d.times = append(d.times, *t)
	}
}

// decodeShared sets v to an earlier object, or leaves it nil. It reports whether the contents of a new object follow instead.
func (d *decoder) decodeShared(v reflect.Value) (isNew bool) {
	mark := d.readUint()
	if mark == markShared {
		v.Set(d.objects[d.readUint()])
	}
	return mark == markNew
}

func (d *decoder) decodeSlice(v reflect.Value) {
	if !d.decodeShared(v) {
		return
	}
	length := int(d.readUint())
	v.Set(reflect.MakeSlice(v.Type(), length, length))
	d.objects = append(d.objects, valueOf(v))
	for i := range length {
		d.decodeValue(v.Index(i))
	}
}

func (d *decoder) decodeMap(v reflect.Value) {
	if !d.decodeShared(v) {
		return
	}
	length := int(d.readUint())
	v.Set(reflect.MakeMapWithSize(v.Type(), length))
	d.objects = append(d.objects, valueOf(v))
	for range length {
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		d.decodeValue(key)
		d.decodeValue(value)
		v.SetMapIndex(key, value)
	}
}

func (d *decoder) decodePointer(v reflect.Value) {
	switch mark := d.readUint(); {
	case mark == markZero:
	case d.keepTypes[v.Type()]:
		v.Set(reflect.ValueOf(d.kept[mark-1]))
	case mark == markShared:
		v.Set(d.objects[d.readUint()].Convert(v.Type()))
	default:
		v.Set(reflect.New(v.Type().Elem()))
		d.objects = append(d.objects, valueOf(v))
		d.decodeValue(v.Elem())
	}
}

func (d *decoder) decodeKept(v reflect.Value) {
	if number := d.readUint(); number > 0 {
		v.Set(reflect.ValueOf(d.kept[number-1]))
	}
}

// valueOf returns the value of the variable v: later changes of the variable do not change it.
func valueOf(v reflect.Value) reflect.Value { return reflect.ValueOf(v.Interface()) }
