// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// State is the support for a field or feature gate of the kubelet.
type State string

// The states of a field or feature gate.
const (
	Supported   State = "supported"      // the field or gate has the effect that it has in the kubelet
	DefaultOnly State = "default only"   // a value other than the default is an error
	NoEffect    State = "without effect" // each value that the kubelet accepts is accepted and ignored
)

// Field is a field of a KubeletConfiguration v1beta1.
type Field struct {
	Name    string   // JSON names, such as authentication.x509.clientCAFile; [] are the elements of a list
	State   State    // of this field
	Accept  []string // JSON of the values that a field in state DefaultOnly may have, beside null
	Comment string   // reason of the state, or the difference to the kubelet; may be empty
}

// Fields returns all fields of the KubeletConfiguration of Kubernetes 1.37, sorted by name. An object is represented by its fields, such as
// authentication.anonymous.enabled. Source: k8s.io/kubelet/config/v1beta1.
func Fields() []Field {
	rows, comments := fieldRows(), supportedComments()
	var all []Field
	for _, name := range fieldNames(reflect.TypeFor[Configuration](), "") {
		all = append(all, Field{Name: name, State: Supported, Comment: comments[name]})
	}
	for _, name := range fieldNames(reflect.TypeFor[otherFields](), "") {
		row := rows[name]
		row.Name = name
		all = append(all, row)
	}
	slices.SortFunc(all, func(a, b Field) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Unsupported returns the sorted names of the KubeletConfiguration fields that the type Configuration does not have. Fields has their states.
func Unsupported() []string {
	var names []string
	for field := range reflect.TypeFor[otherFields]().Fields() {
		names = append(names, field.Tag.Get("json"))
	}
	slices.Sort(names)
	return names
}

// fieldRows returns the rows of fieldTable by name.
func fieldRows() map[string]Field {
	states := map[string]State{"default": DefaultOnly, "none": NoEffect, "supported": Supported}
	rows := map[string]Field{}
	for line := range strings.Lines(strings.TrimSpace(fieldTable)) {
		cells := strings.Split(line, "|")
		name, state, _ := strings.Cut(strings.TrimSpace(cells[0]), " ")
		row := Field{Name: name, State: states[state], Comment: strings.TrimSpace(cells[2])}
		if accept := strings.TrimSpace(cells[1]); accept != "-" {
			row.Accept = strings.Split(accept, " or ")
		}
		rows[name] = row
	}
	return rows
}

// fieldNames returns the JSON path of each field in type t that is no struct. path is the path of t. A path has [] for the elements of a list.
func fieldNames(t reflect.Type, path string) (names []string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct && !isLeaf(t.Elem()):
		return fieldNames(t.Elem(), path+"[]")
	case t.Kind() != reflect.Struct || isLeaf(t):
		return []string{path}
	}
	for field := range t.Fields() {
		tag, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case field.Anonymous && tag == "":
			names = append(names, fieldNames(field.Type, path)...)
		case tag != "" && tag != "-":
			names = append(names, fieldNames(field.Type, strings.TrimPrefix(path+"."+tag, "."))...)
		}
	}
	return names
}

// secretField is a field with secrets such as bearer tokens. Errors omit its value.
const secretField = "staticPodURLHeader"

// checkStates returns an error for each field in state DefaultOnly whose value is not accepted. The error has name and value of the field.
func (o *otherFields) checkStates() (errs []error) {
	rows := fieldRows()
	visitLeaves(reflect.ValueOf(o).Elem(), "", "", func(row, path string, value reflect.Value) {
		if r := rows[row]; r.State == DefaultOnly && !isAccepted(value, r.Accept) {
			want := strings.Join(r.Accept, " or ")
			if want == "" {
				want = "an empty value"
			}
			text := shortenText(encodeJSON(value.Interface()))
			if row == secretField {
				text = "its value"
			}
			errs = append(errs, fmt.Errorf("%s: %s is not supported by this version, want %s", path, text, want))
		}
	})
	return errs
}

// visitLeaves calls visit for each field in v that is no struct. row is the name of the field in fieldTable. path also has the index of each list
// element.
func visitLeaves(v reflect.Value, row, path string, visit func(row, path string, value reflect.Value)) {
	t := v.Type()
	switch {
	case t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct && !isLeaf(t.Elem()):
		if !v.IsNil() {
			visitLeaves(v.Elem(), row, path, visit)
		}
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct && !isLeaf(t.Elem()):
		for i := range v.Len() {
			visitLeaves(v.Index(i), row+"[]", fmt.Sprintf("%s[%d]", path, i), visit)
		}
	case t.Kind() == reflect.Struct && !isLeaf(t):
		for i := range t.NumField() {
			name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
			visitLeaves(v.Field(i), strings.TrimPrefix(row+"."+name, "."), strings.TrimPrefix(path+"."+name, "."), visit)
		}
	default:
		visit(row, path, v)
	}
}

// isAccepted reports whether v is zero or empty, or equals one of the JSON values in accept.
func isAccepted(v reflect.Value, accept []string) bool {
	zero, hasZero := reflect.TypeAssert[interface{ IsZero() bool }](v)
	switch kind := v.Kind(); {
	case v.IsZero(), hasZero && kind != reflect.Pointer && zero.IsZero():
		return true
	case kind == reflect.Map || kind == reflect.Slice:
		if v.Len() == 0 {
			return true
		}
	}
	return slices.ContainsFunc(accept, func(text string) bool {
		want := reflect.New(v.Type())
		err := json.Unmarshal([]byte(text), want.Interface())
		return err == nil && reflect.DeepEqual(want.Elem().Interface(), v.Interface())
	})
}
