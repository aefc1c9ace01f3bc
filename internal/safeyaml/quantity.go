// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package safeyaml

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// The limits of a quantity. 1e100 is more than any resource has, and a number of some million digits takes seconds to
// parse, and again whenever it is compared.
const (
	MaxExponent = 100 // and the least is -MaxExponent
	MaxQuantity = 64  // characters
)

// Quantities returns an error for the first quantity in the JSON of an object that is longer, or has a larger exponent,
// than any amount of a resource needs. What is a quantity follows from the type that the object will be decoded into.
// Keys fit in lower and upper case, as for package encoding/json. JSON that is not valid is for the decoder to refuse.
func Quantities(raw []byte, t reflect.Type) error {
	if !json.Valid(raw) {
		return nil
	}
	types := fields{}
	s := scanner{data: raw, scalar: func(s *scanner, text []byte) error {
		text = bytes.TrimSpace(unquote(text))
		err := checkQuantity(text)
		if err == nil || !types.quantity(t, s.path) {
			return nil
		}
		return fmt.Errorf("quantity %s: %w", excerpt(text), err)
	}}
	return s.scan()
}

// checkQuantity returns an error for a number that takes long to parse, and none for what is no number.
func checkQuantity(text []byte) error {
	if len(text) == 0 || !strings.ContainsRune("+-.0123456789", rune(text[0])) {
		return nil
	}
	if len(text) > MaxQuantity {
		return fmt.Errorf("%d characters, the limit is %d", len(text), MaxQuantity)
	}
	e := bytes.IndexAny(text, "eE")
	if e < 0 {
		return nil
	}
	exponent, err := strconv.Atoi(string(text[e+1:]))
	if errors.Is(err, strconv.ErrSyntax) {
		return nil
	}
	if err != nil || exponent > MaxExponent || exponent < -MaxExponent {
		return fmt.Errorf("the exponent must be between %d and %d", -MaxExponent, MaxExponent)
	}
	return nil
}

// excerpt quotes the beginning of a text.
func excerpt(text []byte) string {
	if len(text) <= MaxQuantity {
		return strconv.Quote(string(text))
	}
	return strconv.Quote(string(text[:MaxQuantity/2])) + "..."
}

// fields keeps what the keys of a struct lead to, by lower-case key.
type fields map[reflect.Type]map[string]reflect.Type

// quantity reports whether what is at a path below a type is a quantity.
func (f fields) quantity(t reflect.Type, path []step) bool {
	for _, step := range path {
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		switch {
		case step.key == nil && t.Kind() == reflect.Slice, step.key != nil && t.Kind() == reflect.Map:
			t = t.Elem()
		case step.key != nil && t.Kind() == reflect.Struct:
			var ok bool
			if t, ok = f.of(t)[fold(string(step.key))]; !ok {
				return false
			}
		default:
			return false
		}
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t == reflect.TypeFor[resource.Quantity]()
}

// of returns what the keys of a struct lead to, those of embedded structs included.
func (f fields) of(t reflect.Type) map[string]reflect.Type {
	if known, ok := f[t]; ok {
		return known
	}
	keys := make(map[string]reflect.Type)
	f[t] = keys
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		inner := field.Type
		for inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if field.Anonymous && name == "" && inner.Kind() == reflect.Struct {
			for key, child := range f.of(inner) {
				if _, ok := keys[key]; !ok {
					keys[key] = child
				}
			}
			continue
		}
		if name == "" {
			name = field.Name
		}
		keys[fold(name)] = field.Type
	}
	return keys
}

// fold makes keys equal that package encoding/json takes for each other: by upper case, two more runes than ASCII has
// become letters of it.
func fold(key string) string { return strings.ToLower(strings.ToUpper(key)) }
