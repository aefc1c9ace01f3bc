// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podapi

import (
	"maps"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Equal reports whether two API objects, or two parts of objects, are equal. a and b must be pointers of the same type.
// Quantities and times are compared by value, and an empty list or map equals nil, as in equality.Semantic of apimachinery.
// Equal does not allocate.
func Equal(a, b any) bool { return equalValues(reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem()) }

func equalValues(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.Pointer:
		if a.IsNil() || b.IsNil() {
			return a.IsNil() && b.IsNil()
		}
		return equalValues(a.Elem(), b.Elem())
	case reflect.Struct:
		return equalStructs(a, b)
	case reflect.Slice, reflect.Array:
		if a.Len() != b.Len() {
			return false
		}
		for i := range a.Len() {
			if !equalValues(a.Index(i), b.Index(i)) {
				return false
			}
		}
		return true
	case reflect.Map:
		return a.Len() == b.Len() && (a.Len() == 0 || equalMaps(a.Interface(), b.Interface()))
	case reflect.String:
		return a.String() == b.String()
	case reflect.Bool:
		return a.Bool() == b.Bool()
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return a.Int() == b.Int()
	}
	return reflect.DeepEqual(a.Interface(), b.Interface())
}

func equalStructs(a, b reflect.Value) bool {
	switch x := a.Addr().Interface().(type) {
	case *resource.Quantity:
		return x.Cmp(*b.Addr().Interface().(*resource.Quantity)) == 0
	case *metav1.Time:
		return x.Equal(b.Addr().Interface().(*metav1.Time))
	}
	for i := range a.NumField() {
		if !equalValues(a.Field(i), b.Field(i)) {
			return false
		}
	}
	return true
}

func equalMaps(a, b any) bool {
	switch x := a.(type) {
	case map[string]string:
		return maps.Equal(x, b.(map[string]string))
	case corev1.ResourceList:
		return maps.EqualFunc(x, b.(corev1.ResourceList), func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 })
	}
	return reflect.DeepEqual(a, b)
}

// findDifferences returns the paths of the fields in which a and b differ, of a map or list of different length only its own
// path.
func findDifferences(a, b reflect.Value, path *field.Path) []*field.Path {
	switch {
	case equalValues(a, b):
		return nil
	case a.Kind() == reflect.Pointer && !a.IsNil() && !b.IsNil():
		return findDifferences(a.Elem(), b.Elem(), path)
	case a.Kind() == reflect.Slice && a.Len() == b.Len():
		var paths []*field.Path
		for i := range a.Len() {
			paths = append(paths, findDifferences(a.Index(i), b.Index(i), path.Index(i))...)
		}
		return paths
	case a.Kind() != reflect.Struct || a.Type() == reflect.TypeFor[resource.Quantity]() || a.Type() == reflect.TypeFor[metav1.Time]():
		return []*field.Path{path}
	}
	var paths []*field.Path
	for i := range a.NumField() {
		at := path
		if name, _, _ := strings.Cut(a.Type().Field(i).Tag.Get("json"), ","); name != "" {
			at = path.Child(name)
		}
		paths = append(paths, findDifferences(a.Field(i), b.Field(i), at)...)
	}
	return paths
}
