// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package safeyaml

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/internal/quantity"
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
		err := quantity.Check(text)
		if err == nil || !types.quantity(t, s.path) {
			return nil
		}
		return fmt.Errorf("quantity %s: %w", excerpt(text), err)
	}}
	return s.scan()
}

// excerpt quotes the beginning of a text.
func excerpt(text []byte) string {
	if len(text) <= quantity.MaxLength {
		return strconv.Quote(string(text))
	}
	return strconv.Quote(string(text[:quantity.MaxLength/2])) + "..."
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
