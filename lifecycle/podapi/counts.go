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
	maxEntries   = 1000    // of each list and each map of a pod
	maxKey       = 1 << 10 // bytes of the key of a map; most have to be shorter
	maxResources = 100     // different ones that a pod asks for, as each is added up over all containers
)

// validateCounts checks that no list of a pod is too long for its entries to be looked at one by one. The status is
// left out.
func validateCounts(pod *corev1.Pod) field.ErrorList {
	var w listWalker
	w.walk(reflect.ValueOf(&pod.ObjectMeta), step{name: "metadata"})
	w.walk(reflect.ValueOf(&pod.Spec), step{name: "spec"})
	if len(w.errs) > 0 {
		return w.errs
	}
	return validateResourceNames(&pod.Spec)
}

// listWalker finds the lists and maps that are too long.
type listWalker struct {
	stack []step // the way to where it is
	errs  field.ErrorList
}

// step is a field of a struct, or an entry of a list if it has no name and no struct.
type step struct {
	name  string
	of    reflect.Type
	index int
}

// walk looks at a value to which a step leads.
func (w *listWalker) walk(v reflect.Value, s step) {
	w.stack = append(w.stack, s)
	defer func() { w.stack = w.stack[:len(w.stack)-1] }()
	for v.Kind() == reflect.Pointer {
		v = v.Elem() // the zero Value where it is nil
	}
	switch v.Kind() {
	case reflect.Map, reflect.Slice:
		w.entries(v)
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Field(i); composed(f.Kind()) && f.CanInterface() {
				w.walk(f, step{of: v.Type(), index: i})
			}
		}
	}
}

// entries counts the entries of a list or map, and looks at those of a list if they are not too many. No map of a pod
// has lists in it, and bytes are a text.
func (w *listWalker) entries(v reflect.Value) {
	kind := v.Type().Elem().Kind()
	if v.Len() > maxEntries && kind != reflect.Uint8 {
		if len(w.errs) <= fielderr.MaxErrors {
			w.errs = append(w.errs, field.TooMany(w.path(), v.Len(), maxEntries))
		}
		return
	}
	if v.Kind() == reflect.Map {
		w.keys(v)
	}
	if v.Kind() == reflect.Slice && composed(kind) {
		for i := range v.Len() {
			w.walk(v.Index(i), step{index: i})
		}
	}
}

// keys checks that no key of a map takes long to be matched with what it has to be.
func (w *listWalker) keys(v reflect.Value) {
	for it := v.MapRange(); it.Next(); {
		if key := it.Key(); key.Kind() == reflect.String && key.Len() > maxKey {
			w.errs = append(w.errs, fielderr.TooLong(w.path(), "a key may not be more than %d bytes", maxKey))
			return
		}
	}
}

func composed(k reflect.Kind) bool {
	return k == reflect.Struct || k == reflect.Pointer || k == reflect.Slice || k == reflect.Map
}

// path returns where the walker is, in the names of the API.
func (w *listWalker) path() *field.Path {
	var path *field.Path
	for _, s := range w.stack {
		switch name := s.name; {
		case name != "":
			path = field.NewPath(name)
		case s.of == nil:
			path = path.Index(s.index)
		default:
			// A struct that is embedded has no name of its own.
			if name, _, _ = strings.Cut(s.of.Field(s.index).Tag.Get("json"), ","); name != "" {
				path = path.Child(name)
			}
		}
	}
	return path
}

// validateResourceNames checks that a pod asks for no more kinds of resources than any machine has.
func validateResourceNames(s *corev1.PodSpec) field.ErrorList {
	var errs field.ErrorList
	names := make(map[corev1.ResourceName]bool)
	count := func(list corev1.ResourceList, path *field.Path) {
		for name := range list {
			names[name] = true
		}
		if len(names) > maxResources && len(errs) == 0 {
			err := field.TooMany(path, len(names), maxResources)
			err.Detail = fmt.Sprintf("a pod may ask for at most %d different resources", maxResources)
			errs = append(errs, err)
		}
	}
	path := field.NewPath("spec")
	count(s.Overhead, path.Child("overhead"))
	if s.Resources != nil {
		count(s.Resources.Limits, path.Child("resources", "limits"))
		count(s.Resources.Requests, path.Child("resources", "requests"))
	}
	for c := range podfield.Containers(s) {
		if len(c.Resources.Limits)+len(c.Resources.Requests) > 0 {
			count(c.Resources.Limits, c.Path.Child("resources", "limits"))
			count(c.Resources.Requests, c.Path.Child("resources", "requests"))
		}
	}
	return errs
}
