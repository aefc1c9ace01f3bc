// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiservertest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// key identifies an object in the store.
type key struct {
	kind            *kind
	namespace, name string
}

// change is one entry of the history: the replacement of before by after. Its objects are never modified.
type change struct {
	version       int64
	kind          *kind
	before, after Object // nil: the object did not or does not exist
}

// store holds the objects and a history of changes. Stored objects are replaced and never modified.
type store struct {
	kinds *kinds

	mu      sync.Mutex // guards the fields below
	seed    uint64     // part of generated UIDs
	version int64      // resource version of the newest change
	objects map[*kind]map[key]Object
	history []change
	limit   int           // maximum length of history
	oldest  int64         // changes up to this version are not in history any more
	changed chan struct{} // closed at the next change, and replaced
}

func newStore(kinds *kinds, maxHistory int) *store {
	return &store{
		kinds: kinds, seed: rand.Uint64(), version: 1000, oldest: 1000, limit: maxHistory, //nolint:gosec // It is no secret.
		objects: map[*kind]map[key]Object{}, changed: make(chan struct{}),
	}
}

// keyOf returns the key of an object in the store: its kind, namespace and name.
func (s *store) keyOf(obj Object) (key, error) {
	k := s.kinds.kindOf(obj)
	switch {
	case k == nil:
		return key{}, unsupportedError(obj)
	case k.namespaced && obj.GetNamespace() == "":
		return key{}, fmt.Errorf("%s %s: metadata.namespace: required", k.Kind, obj.GetName())
	}
	return key{k.storedKind(), obj.GetNamespace(), obj.GetName()}, nil
}

// getObject returns the stored object with key k, or a NotFound error. The object is shared and must not be changed.
func (s *store) getObject(k key) (Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.getLocked(k)
}

func (s *store) getLocked(k key) (Object, error) {
	if obj, ok := s.objects[k.kind][k]; ok {
		return obj, nil
	}
	return nil, apierrors.NewNotFound(k.kind.groupResource(), k.name)
}

// listObjects returns the objects of a kind that match, ordered by namespace and name. version is the resource version of
// the store.
func (s *store) listObjects(kind *kind, matches func(Object) bool) (objects []Object, version int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listLocked(kind, matches), s.version
}

func (s *store) listLocked(kind *kind, matches func(Object) bool) []Object {
	var list []Object
	for _, obj := range s.objects[kind] {
		if matches(obj) {
			list = append(list, obj)
		}
	}
	slices.SortFunc(list, func(a, b Object) int {
		return cmp.Or(strings.Compare(a.GetNamespace(), b.GetNamespace()), strings.Compare(a.GetName(), b.GetName()))
	})
	return list
}

// updateObject replaces the object with key k by the result of edit, and returns that. A nil object does not exist.
func (s *store) updateObject(k key, dryRun bool, edit func(before Object) (after Object, err error)) (Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// edit must not change the stored object, and the store owns the result
	before := s.objects[k.kind][k]
	after, err := edit(before)
	switch {
	case err != nil:
		return nil, err
	case dryRun && after == nil: // a deletion returns the deleted object
		return before, nil
	case dryRun:
		return after, nil
	}
	return s.putLocked(k, before, after), nil
}

// putLocked replaces, creates or removes an object in the store, and returns the new or removed object. A nil object does not
// exist.
func (s *store) putLocked(k key, before, after Object) Object {
	// the caller holds s.mu
	if before != nil && after != nil && equalObjects(before, after) {
		return before
	}
	if before == nil && after == nil {
		return nil
	}
	s.version++
	event := change{version: s.version, kind: k.kind, before: before, after: after}
	if after != nil {
		after.SetResourceVersion(strconv.FormatInt(s.version, 10))
		if s.objects[k.kind] == nil {
			s.objects[k.kind] = map[key]Object{}
		}
		s.objects[k.kind][k] = after
	} else {
		delete(s.objects[k.kind], k)
		event.before = cloneObject(before)
		event.before.SetResourceVersion(strconv.FormatInt(s.version, 10))
		after = event.before
	}
	s.appendLocked(event)
	return after
}

// appendLocked adds a change to the history and wakes the watches.
func (s *store) appendLocked(event change) {
	s.history = append(s.history, event)
	if extra := len(s.history) - s.limit; extra > 0 {
		s.oldest = s.history[extra-1].version
		s.history = slices.Delete(s.history, 0, extra)
	}
	s.wakeLocked()
}

func (s *store) wakeLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// changesSince returns the changes after a resource version. ok is false if the history no longer has all of them.
func (s *store) changesSince(version int64) (changes []change, current int64, nextChange <-chan struct{}, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if version < s.oldest {
		return nil, s.version, s.changed, false
	}
	i, _ := slices.BinarySearchFunc(s.history, version+1, func(c change, v int64) int { return int(c.version - v) })
	return slices.Clone(s.history[i:]), s.version, s.changed, true
}

// compactHistory deletes the history of changes. A watch from an older resource version then gets an ERROR event with 410 Expired.
func (s *store) compactHistory() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history, s.oldest = nil, s.version
	s.wakeLocked()
}

// deleteSilently removes an object but adds nothing to the history, so that watches do not notice it.
func (s *store) deleteSilently(k key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects[k.kind], k)
	s.version++
}

// currentTime returns the time in whole seconds, as API objects store it.
func currentTime() metav1.Time { return metav1.NewTime(time.Now().Truncate(time.Second)) }

// fillLocked sets the name, UID, creation time and defaults of a new object. The caller holds the lock of the store.
func (s *store) fillLocked(obj Object) {
	for try := 0; obj.GetName() == "" || try > 0 && try < 8; try++ { // another name if the generated name is taken
		obj.SetName(generateName(obj.GetGenerateName()))
		if k, err := s.keyOf(obj); err != nil || s.objects[k.kind][k] == nil {
			break
		}
	}
	if obj.GetUID() == "" {
		obj.SetUID(types.UID(fmt.Sprintf("%08x-%04x-4000-8000-%012x", s.seed>>32, s.seed&0xffff, s.version+1)))
	}
	if created := obj.GetCreationTimestamp(); created.IsZero() {
		obj.SetCreationTimestamp(currentTime())
	}
	setDefaults(obj)
}

// generateName returns a name that begins with prefix, has a random suffix of five characters, and at most 63 characters.
func generateName(prefix string) string {
	const letters, maxLength = "bcdfghjklmnpqrstvwxz2456789", 63
	suffix := make([]byte, 5)
	for i := range suffix {
		suffix[i] = letters[rand.IntN(len(letters))] //nolint:gosec // It is no secret.
	}
	return prefix[:min(len(prefix), maxLength-len(suffix))] + string(suffix)
}

// cloneObject returns a deep copy of obj.
func cloneObject[T Object](obj T) T { return obj.DeepCopyObject().(T) }

// equalObjects reports whether two objects are equal, apart from their resource versions.
func equalObjects(a, b Object) bool {
	if a.GetResourceVersion() != b.GetResourceVersion() {
		b = cloneObject(b)
		b.SetResourceVersion(a.GetResourceVersion())
	}
	return reflect.DeepEqual(a, b)
}

// watchEvent returns the event that a watch of this kind sends for the change. ok is false if it sends none.
func (c change) watchEvent(kind *kind, matches func(Object) bool) (eventType watch.EventType, obj runtime.Object, ok bool) {
	if c.kind != kind {
		return "", nil, false
	}
	// an object that starts to match the watch's selector is ADDED, and an object that stops to match is DELETED
	was, is := c.before != nil && matches(c.before), c.after != nil && matches(c.after)
	switch {
	case is && was:
		return watch.Modified, c.after, true
	case is:
		return watch.Added, c.after, true
	case was:
		gone := cloneObject(c.before)
		gone.SetResourceVersion(strconv.FormatInt(c.version, 10))
		return watch.Deleted, gone, true
	default:
		return "", nil, false
	}
}
