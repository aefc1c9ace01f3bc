// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/seed81659283/nodeagent/internal/safeyaml"
)

// object is a decoded JSON object. Its values have the types of encoding/json; numbers are json.Number.
type object = map[string]any

// parseObject decodes one YAML or JSON document strictly: duplicate keys are errors. An empty document is a nil object.
func parseObject(document []byte) (object, error) {
	// Aliases expand: without a limit, 1 MiB of YAML becomes gigabytes.
	if _, err := safeyaml.NewBudget(len(document)).YAML(document); err != nil {
		return nil, errors.New(strings.ReplaceAll(err.Error(), "\n ", ""))
	}
	text, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return nil, errors.New(strings.ReplaceAll(err.Error(), "\n ", "")) // one line
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var fields object
	if err := decoder.Decode(&fields); err != nil && !errors.Is(err, io.EOF) {
		return nil, errors.New("the document is no object")
	}
	return fields, nil
}

// decodeFields decodes fields into the struct that target points to. The caller has checked the fields with checkFields.
func decodeFields(fields object, target any) error {
	text, err := json.Marshal(fields)
	if err == nil {
		err = json.Unmarshal(text, target)
	}
	return err
}

// checkFields checks a decoded value against the Go type t. It returns an error for each value of a wrong type and each unknown field; names are
// case-sensitive. path is the name of the field, with which each error starts.
func checkFields(t reflect.Type, path string, value any) []error {
	if value == nil && !isLeaf(t) {
		return nil
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case isLeaf(t): // also null, which a duration refuses
	case t.Kind() == reflect.Struct:
		if fields, ok := value.(object); ok {
			return checkStruct(t, path, fields)
		}
	case t.Kind() == reflect.Map:
		if entries, ok := value.(object); ok {
			return checkEntries(t, path, entries)
		}
	case t.Kind() == reflect.Slice:
		if elements, ok := value.([]any); ok {
			return checkElements(t, path, elements)
		}
	}
	if err := checkValue(t, value); err != nil {
		return []error{fmt.Errorf("%s: %w", path, err)}
	}
	return nil
}

func checkStruct(t reflect.Type, path string, fields object) (errs []error) {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		inner := strings.TrimPrefix(path+"."+name, ".")
		if field, ok := findField(t, name); ok {
			errs = append(errs, checkFields(field, inner, fields[name])...)
		} else {
			errs = append(errs, fmt.Errorf("%s: unknown field", inner))
		}
	}
	return errs
}

func checkEntries(t reflect.Type, path string, entries object) (errs []error) {
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		errs = append(errs, checkFields(t.Elem(), fmt.Sprintf("%s[%q]", path, key), entries[key])...)
	}
	return errs
}

func checkElements(t reflect.Type, path string, elements []any) (errs []error) {
	for i, element := range elements {
		errs = append(errs, checkFields(t.Elem(), fmt.Sprintf("%s[%d]", path, i), element)...)
	}
	return errs
}

// checkValue returns an error if value cannot be decoded into t.
func checkValue(t reflect.Type, value any) error {
	text := encodeJSON(value)
	err := json.Unmarshal(text, reflect.New(t).Interface())
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("%s is no %s", shortenText(text), nameType(wrong.Type))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", shortenText(text), err)
	}
	return nil
}

// nameType returns the name of t for an error: "object", "list", or the Go name such as int32, which states the range.
func nameType(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Map, reflect.Struct:
		return "object"
	case reflect.Slice:
		return "list"
	}
	return t.Kind().String()
}

// encodeJSON returns value as JSON for an error. It does not escape <, > and &.
func encodeJSON(value any) []byte {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return []byte(err.Error())
	}
	return bytes.TrimSpace(text.Bytes())
}

// shortenText cuts text to 100 bytes for an error.
func shortenText(text []byte) string {
	if most := 100; len(text) > most {
		return strings.ToValidUTF8(string(text[:most]), "") + "..."
	}
	return string(text)
}

// findField returns the type of the field of struct t whose JSON name is name. It also searches embedded structs.
func findField(t reflect.Type, name string) (reflect.Type, bool) {
	for field := range t.Fields() {
		tag, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if tag == "" && field.Anonymous {
			if inner, ok := findField(field.Type, name); ok {
				return inner, true
			}
		}
		if tag == name && tag != "" {
			return field.Type, true
		}
	}
	return nil, false
}

// isLeaf reports whether t has a method UnmarshalJSON or UnmarshalText. For a pointer it returns false.
func isLeaf(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		return false
	}
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[json.Unmarshaler]()) || p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}
