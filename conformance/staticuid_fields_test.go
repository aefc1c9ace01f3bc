// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"encoding/json"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/seed81659283/nodeagent/conformance"
)

// quantityTexts are quantities in JSON, some of which are numbers, not canonical, or too large for 64 bits.
var quantityTexts = []string{
	`"1"`, `"0.5"`, `"1e3"`, `"1.5Gi"`, `"100m"`, `1`, `0.1`, `1e3`, `"1E3"`, `"0"`, `"-0"`, `"0.0001"`, `"1n"`, `"1500u"`, `"0.7Gi"`,
	`"128Mi"`, `"1000Ki"`, `"12e6"`, `"9223372036854775807"`, `"9223372036854775808"`, `"99999999999999999999.5"`, `"8Ei"`, `"100000E"`,
	`"-1.5"`, `"+1"`, `" 1 "`, `".5"`, `"5."`, `"1e-3"`, `"123456789.123456789"`, `"1Ti"`, `"1.0000000001Mi"`, `"0m"`, `"0e5"`, `"001"`,
}

// randomPodJSON returns a pod in JSON with random values in random fields. It may be invalid.
func randomPodJSON(c *conformance.Choices) string {
	pod := map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": randomObject(c, reflect.TypeFor[metav1.ObjectMeta]()),
		"spec": randomObject(c, reflect.TypeFor[corev1.PodSpec]()),
	}
	if c.OneIn(4) {
		pod["status"] = randomObject(c, reflect.TypeFor[corev1.PodStatus]())
	}
	if c.OneIn(16) {
		pod["spec"] = nil
	}
	text, err := json.Marshal(pod)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// randomValue returns a value in JSON for the type, or null.
func randomValue(c *conformance.Choices, t reflect.Type) any {
	if c.OneIn(24) {
		return nil
	}
	switch t {
	case reflect.TypeFor[resource.Quantity]():
		if c.OneIn(8) {
			q := conformance.Bytes(c)
			return q.String()
		}
		return json.RawMessage(conformance.Pick(c, quantityTexts...))
	case reflect.TypeFor[metav1.Time]():
		return conformance.Pick(c, "2026-01-02T03:04:05Z", "2026-07-02T03:04:05+02:00", "1969-12-31T23:59:59Z", "2026-01-02T03:04:05.25Z", "0001-01-01T00:00:00Z")
	case reflect.TypeFor[intstr.IntOrString]():
		return conformance.Pick[any](c, 80, "http", "", 0)
	case reflect.TypeFor[metav1.FieldsV1]():
		return conformance.Pick[any](c, map[string]any{}, map[string]any{"f:metadata": map[string]any{"f:é": map[string]any{}}})
	}
	switch t.Kind() {
	case reflect.Pointer:
		return randomValue(c, t.Elem())
	case reflect.Struct:
		return randomObject(c, t)
	case reflect.Map:
		m := map[string]any{}
		for range conformance.Pick(c, 1, 2, 3, 0) {
			m[conformance.Pick(c, "cpu", "memory", "hugepages-2Mi", "a", "é", "A", "")] = randomValue(c, t.Elem())
		}
		return m
	case reflect.Slice:
		list := []any{}
		for range conformance.Pick(c, 1, 2, 0) {
			if t.Elem().Kind() == reflect.Struct {
				list = append(list, randomObject(c, t.Elem()))
			} else {
				list = append(list, randomValue(c, t.Elem()))
			}
		}
		return list
	case reflect.Bool:
		return c.OneIn(2)
	case reflect.String:
		return conformance.Pick(c, "a", "", "nginx", "nginx:latest", "r:5000/a", "r/a:1@sha256:0123", "ü \n\"\\<>&\u2028", "{x:y}", "<nil>", "Always", "HTTP", "\x00")
	}
	return conformance.Pick(c, 1, 0, 2, 30, -1, 1<<31-1)
}

// randomObject returns an object in JSON with values in at most five random fields of the struct type. A pod spec often has one
// more field that leads to many other fields.
func randomObject(c *conformance.Choices, t reflect.Type) map[string]any {
	fields := jsonFields(t)
	object := map[string]any{}
	for range conformance.Pick(c, 2, 1, 3, 5, 0) {
		f := fields[c.Int(256)%len(fields)]
		if f.name != "uid" {
			object[f.name] = randomValue(c, f.typ)
		}
	}
	if c.OneIn(2) && t == reflect.TypeFor[corev1.PodSpec]() {
		name := conformance.Pick(c, "containers", "volumes", "initContainers", "ephemeralContainers", "securityContext", "affinity")
		for _, f := range fields {
			if f.name == name {
				object[name] = randomValue(c, f.typ)
			}
		}
	}
	return object
}

// jsonField is a field of an object in JSON.
type jsonField struct {
	name string
	typ  reflect.Type
}

// jsonFields returns the fields of a struct type, with those of its inlined fields.
func jsonFields(t reflect.Type) (fields []jsonField) {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "" && f.Anonymous:
			fields = append(fields, jsonFields(f.Type)...)
		case name != "" && name != "-":
			fields = append(fields, jsonField{name, f.Type})
		}
	}
	return fields
}
