// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podapi

import (
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/internal/fielderr"
	"github.com/seed81659283/nodeagent/internal/podfield"
)

const (
	maxEntries   = 1000    // in each list and each map of a pod
	maxKey       = 1 << 10 // length of a map key in bytes
	maxResources = 100     // distinct resource names per pod; each is summed over all containers
)

// validateCounts checks the length of each list and map of the pod, before all other checks: these would take long for a
// huge pod.
func validateCounts(pod *corev1.Pod) field.ErrorList {
	var w listChecker
	w.checkValue(reflect.ValueOf(&pod.ObjectMeta), pathStep{name: "metadata"})
	w.checkValue(reflect.ValueOf(&pod.Spec), pathStep{name: "spec"})
	if len(w.errs) > 0 {
		return w.errs
	}
	return validateResourceNames(&pod.Spec)
}

// listChecker finds lists and maps in a pod that have too many entries.
type listChecker struct {
	stack []pathStep // path of the value that is being checked
	errs  field.ErrorList
}

// pathStep is one element of the path to a value: the field with this index of structType, or a list index if name and structType
// are unset.
type pathStep struct {
	name       string
	structType reflect.Type
	index      int
}

// checkValue checks the length of each list and map in value and its fields. step is the last element of the path to value,
// for errors.
func (w *listChecker) checkValue(value reflect.Value, step pathStep) {
	w.stack = append(w.stack, step)
	defer func() { w.stack = w.stack[:len(w.stack)-1] }()
	for value.Kind() == reflect.Pointer {
		value = value.Elem() // invalid Value for a nil pointer
	}
	switch value.Kind() {
	case reflect.Map, reflect.Slice:
		w.checkEntries(value)
	case reflect.Struct:
		for i := range value.NumField() {
			if f := value.Field(i); hasElements(f.Kind()) && f.CanInterface() {
				w.checkValue(f, pathStep{structType: value.Type(), index: i})
			}
		}
	}
}

// checkEntries checks the length of a list or map, except []byte, and then the elements of a list.
func (w *listChecker) checkEntries(value reflect.Value) {
	kind := value.Type().Elem().Kind()
	if value.Len() > maxEntries && kind != reflect.Uint8 {
		if len(w.errs) <= fielderr.MaxErrors {
			w.errs = append(w.errs, field.TooMany(w.fieldPath(), value.Len(), maxEntries))
		}
		return
	}
	if value.Kind() == reflect.Map {
		w.checkKeys(value)
	}
	// The maps of a pod contain no lists.
	if value.Kind() == reflect.Slice && hasElements(kind) {
		for i := range value.Len() {
			w.checkValue(value.Index(i), pathStep{index: i})
		}
	}
}

// checkKeys checks the length of each key of a map, because a long key would be slow to match against a pattern.
func (w *listChecker) checkKeys(value reflect.Value) {
	for it := value.MapRange(); it.Next(); {
		if key := it.Key(); key.Kind() == reflect.String && key.Len() > maxKey {
			w.errs = append(w.errs, fielderr.TooLong(w.fieldPath(), "a key may not be more than %d bytes", maxKey))
			return
		}
	}
}

func hasElements(k reflect.Kind) bool {
	return k == reflect.Struct || k == reflect.Pointer || k == reflect.Slice || k == reflect.Map
}

// fieldPath returns the path of the value that is being checked now. Its elements are the JSON names of the fields.
func (w *listChecker) fieldPath() *field.Path {
	var path *field.Path
	for _, s := range w.stack {
		switch name := s.name; {
		case name != "":
			path = field.NewPath(name)
		case s.structType == nil:
			path = path.Index(s.index)
		default:
			// An embedded struct has no JSON name.
			if name, _, _ = strings.Cut(s.structType.Field(s.index).Tag.Get("json"), ","); name != "" {
				path = path.Child(name)
			}
		}
	}
	return path
}

// validateResourceNames checks that the requests and limits of a pod together name at most maxResources different resources.
func validateResourceNames(spec *corev1.PodSpec) field.ErrorList {
	var errs field.ErrorList
	names := make(map[corev1.ResourceName]bool)
	count := func(list corev1.ResourceList, path *field.Path) {
		for name := range list {
			names[name] = true
		}
		if len(names) > maxResources && len(errs) == 0 {
			err := field.TooMany(path, len(names), maxResources)
			err.Detail = fmt.Sprintf("a pod may request at most %d different resources", maxResources)
			errs = append(errs, err)
		}
	}
	path := field.NewPath("spec")
	count(spec.Overhead, path.Child("overhead"))
	if spec.Resources != nil {
		count(spec.Resources.Limits, path.Child("resources", "limits"))
		count(spec.Resources.Requests, path.Child("resources", "requests"))
	}
	for c := range podfield.Containers(spec) {
		if len(c.Resources.Limits)+len(c.Resources.Requests) > 0 {
			count(c.Resources.Limits, c.Path.Child("resources", "limits"))
			count(c.Resources.Requests, c.Path.Child("resources", "requests"))
		}
	}
	return errs
}
