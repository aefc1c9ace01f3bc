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

// Quantities returns an error for the first quantity in the JSON text raw that is too long or has too large an exponent.
// objectType is the type into which the caller decodes raw. Invalid JSON is left to the decoder.
func Quantities(raw []byte, objectType reflect.Type) error {
	if !json.Valid(raw) {
		return nil
	}
	types := fieldCache{}
	s := scanner{data: raw, scalar: func(s *scanner, text []byte) error {
		text = bytes.TrimSpace(unquoteString(text))
		err := quantity.Check(text)
		if err == nil || !types.isQuantity(objectType, s.path) {
			return nil
		}
		return fmt.Errorf("quantity %s: %w", quotePrefix(text), err)
	}}
	return s.scanDocument()
}

// quotePrefix returns text in quotes. If text is longer than any valid quantity, it quotes only the start.
func quotePrefix(text []byte) string {
	if len(text) <= quantity.MaxLength {
		return strconv.Quote(string(text))
	}
	return strconv.Quote(string(text[:quantity.MaxLength/2])) + "..."
}

// fieldCache has the types of struct fields by lower-case JSON key, for each struct type.
type fieldCache map[reflect.Type]map[string]reflect.Type

// isQuantity reports whether a decoder stores the value at path in a resource.Quantity. objectType is the type of the
// object that is decoded.
func (f fieldCache) isQuantity(objectType reflect.Type, path []step) bool {
	for _, step := range path {
		for objectType.Kind() == reflect.Pointer {
			objectType = objectType.Elem()
		}
		switch {
		case step.key == nil && objectType.Kind() == reflect.Slice, step.key != nil && objectType.Kind() == reflect.Map:
			objectType = objectType.Elem()
		case step.key != nil && objectType.Kind() == reflect.Struct:
			var ok bool
			if objectType, ok = f.fieldTypes(objectType)[foldKey(string(step.key))]; !ok {
				return false
			}
		default:
			return false
		}
	}
	for objectType.Kind() == reflect.Pointer {
		objectType = objectType.Elem()
	}
	return objectType == reflect.TypeFor[resource.Quantity]()
}

// fieldTypes returns the type of each field of structType, also of embedded structs, by its JSON key in the form of foldKey.
func (f fieldCache) fieldTypes(structType reflect.Type) map[string]reflect.Type {
	if known, ok := f[structType]; ok {
		return known
	}
	keys := make(map[string]reflect.Type)
	f[structType] = keys
	for field := range structType.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		inner := field.Type
		for inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if field.Anonymous && name == "" && inner.Kind() == reflect.Struct {
			for key, child := range f.fieldTypes(inner) {
				if _, ok := keys[key]; !ok {
					keys[key] = child
				}
			}
			continue
		}
		if name == "" {
			name = field.Name
		}
		keys[foldKey(name)] = field.Type
	}
	return keys
}

// foldKey returns a form of key that is equal for all keys that package encoding/json treats as equal.
func foldKey(key string) string {
	return strings.ToLower(strings.ToUpper(key)) // two non-ASCII letters become ASCII only in upper case
}
