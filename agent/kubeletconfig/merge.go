// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"path/filepath"
	"reflect"

	"github.com/seed81659283/nodeagent/eviction"
)

// mergePatch applies a JSON merge patch (RFC 7386) to target: objects are merged, other values are replaced, and null removes a field. It may
// modify both arguments.
func mergePatch(target, patch object) object {
	if target == nil {
		target = object{}
	}
	for name, value := range patch {
		inner, isObject := value.(object)
		before, wasObject := target[name].(object)
		switch {
		case value == nil:
			delete(target, name)
		case isObject && wasObject:
			target[name] = mergePatch(before, inner)
		default:
			target[name] = withoutNulls(value)
		}
	}
	return target
}

// withoutNulls removes null values from the objects in a value. Nulls in lists stay.
func withoutNulls(value any) any {
	switch value := value.(type) {
	case object:
		for name, inner := range value {
			if inner == nil {
				delete(value, name)
			} else {
				value[name] = withoutNulls(inner)
			}
		}
	case []any:
		for i := range value {
			value[i] = withoutNulls(value[i])
		}
	}
	return value
}

// setMergeDefaults sets fields of the main file whose defaults depend on other fields. It is called before drop-ins are merged, so these defaults do
// not follow the drop-ins, as in the kubelet. Source: cmd/kubelet/app/server.go.
func setMergeDefaults(base object) {
	for name, value := range base {
		field, ok := findField(reflect.TypeFor[Configuration](), name)
		if !ok {
			field, _ = findField(reflect.TypeFor[otherFields](), name)
		}
		if base[name] = replaceNulls(field, value); base[name] == nil {
			delete(base, name)
		}
	}
	update, report := "nodeStatusUpdateFrequency", "nodeStatusReportFrequency"
	if isZeroDuration(base[report]) {
		base[report] = base[update]
		if isZeroDuration(base[update]) {
			base[report] = "5m0s"
		}
	}
	if isZeroDuration(base[update]) {
		base[update] = "10s"
	}
	if list, ok := base["enforceNodeAllocatable"].([]any); ok && len(list) == 0 {
		delete(base, "enforceNodeAllocatable") // the kubelet omits an empty list when it merges
	}
	hard, isSet := base["evictionHard"].(object)
	if !isSet {
		hard = object{}
	}
	for signal, threshold := range eviction.DefaultHard() {
		if _, ok := hard[signal]; !ok && (!isSet || base["mergeDefaultEvictionSettings"] == true) {
			hard[signal] = threshold
		}
	}
	base["evictionHard"] = hard
}

// replaceNulls removes fields with value null from the objects in value, which has type t. In a map it keeps the key, and replaces null by the zero
// value of the element type.
func replaceNulls(t reflect.Type, value any) any {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	fields, ok := value.(object)
	if !ok || isLeaf(t) {
		return value
	}
	for name, inner := range fields {
		switch t.Kind() {
		case reflect.Struct:
			field, _ := findField(t, name)
			if fields[name] = replaceNulls(field, inner); inner == nil {
				delete(fields, name)
			}
		case reflect.Map:
			if inner == nil && !isLeaf(t.Elem()) {
				fields[name] = reflect.Zero(t.Elem()).Interface()
			}
		}
	}
	return fields
}

// isZeroDuration reports whether a field is missing or a duration of zero.
func isZeroDuration(value any) bool {
	var d flushPeriod
	return value == nil || decodeFields(object{"d": value}, &struct {
		D *flushPeriod `json:"d"`
	}{&d}) == nil && d.Duration == 0
}

// resolvePaths makes the relative paths in a KubeletConfiguration absolute. They are relative to dir, the directory of the file. Source:
// pkg/kubelet/kubeletconfig/configfiles and pkg/kubelet/apis/config/helpers.go.
func resolvePaths(fields object, dir string) {
	resolve := func(fields object, name string) {
		if path, ok := fields[name].(string); ok && path != "" && !filepath.IsAbs(path) {
			fields[name] = filepath.Join(dir, path)
		}
	}
	for _, name := range []string{"staticPodPath", "tlsCertFile", "tlsPrivateKeyFile", "resolvConf", "volumePluginDir", "podLogsDir"} {
		resolve(fields, name)
	}
	authentication, _ := fields["authentication"].(object)
	x509, _ := authentication["x509"].(object)
	resolve(x509, "clientCAFile")
}
