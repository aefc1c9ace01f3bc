// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiservertest

import (
	"fmt"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Put creates or replaces objects with their status, without a request and so without injected faults. An existing object
// keeps its UID and creation time. Put does not change its arguments.
func (s *Server) Put(objects ...Object) error {
	for _, obj := range objects {
		stored, err := s.kinds.storedForm(cloneObject(obj))
		if err != nil {
			return fmt.Errorf("put object: %w", err)
		}
		if err := s.putObject(stored); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) putObject(obj Object) error {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	k, err := s.store.keyOf(obj)
	if err != nil {
		return fmt.Errorf("put object: %w", err)
	}
	before := s.store.objects[k.kind][k]
	if before != nil {
		if obj.GetUID() == "" {
			obj.SetUID(before.GetUID())
		}
		if created := obj.GetCreationTimestamp(); created.IsZero() {
			obj.SetCreationTimestamp(before.GetCreationTimestamp())
		}
		obj.SetResourceVersion(before.GetResourceVersion())
	}
	s.store.fillLocked(obj)
	k.name = obj.GetName()
	s.store.putLocked(k, before, obj)
	return nil
}

// Delete deletes an object like kubectl delete, with a grace period in seconds; nil means that of the pod. A pod that is
// bound to a node stays until the node deletes it with a grace period of zero.
func (s *Server) Delete(obj Object, grace *int64) error {
	return s.editObject(obj, func(before Object) Object { return afterDeletion(before, grace, time.Now()) })
}

// Remove removes an object at once. It ignores the grace period and finalizers.
func (s *Server) Remove(obj Object) error {
	return s.editObject(obj, func(Object) Object { return nil })
}

// editObject replaces a stored object by the result of edit(object). A nil result removes the object.
func (s *Server) editObject(obj Object, edit func(Object) Object) error {
	k, err := s.store.keyOf(obj)
	if err != nil {
		return err
	}
	_, err = s.store.updateObject(k, false, func(before Object) (Object, error) {
		if before == nil {
			return nil, apierrors.NewNotFound(k.kind.groupResource(), k.name)
		}
		return edit(before), nil
	})
	return err
}

// Change calls edit(object) with a copy of the object, including its status, and stores the edited copy. It is no request,
// so injected faults do not apply.
func Change[T Object](server *Server, namespace, name string, edit func(T)) error {
	obj, ok := Get[T](server, namespace, name)
	if !ok {
		return fmt.Errorf("change object: there is no %T %s/%s", obj, namespace, name)
	}
	kind := server.kinds.kindOf(obj)
	return server.editObject(obj, func(before Object) Object {
		next := kind.fromStored(cloneObject(before)).(T)
		edit(next)
		return kind.toStored(next)
	})
}

// Get returns a copy of an object, and whether it exists.
func Get[T Object](server *Server, namespace, name string) (object T, exists bool) {
	var none T
	k := server.kinds.byType[reflect.TypeFor[T]().Elem()]
	if k == nil {
		return none, false
	}
	obj, err := server.store.getObject(key{k.storedKind(), namespace, name})
	if err != nil {
		return none, false
	}
	return cloneObject(k.fromStored(obj).(T)), true
}

// List returns copies of all objects of type T, ordered by namespace and name.
func List[T Object](server *Server) []T {
	k := server.kinds.byType[reflect.TypeFor[T]().Elem()]
	if k == nil {
		return nil
	}
	objects, _ := server.store.listObjects(k.storedKind(), func(Object) bool { return true })
	list := make([]T, len(objects))
	for i, obj := range objects {
		list[i] = cloneObject(k.fromStored(obj).(T))
	}
	return list
}

// DeleteSilently removes an object without a watch event, as happens when etcd is restored. Clients notice this only at
// their next list.
func (s *Server) DeleteSilently(obj Object) error {
	k, err := s.store.keyOf(obj)
	if err != nil {
		return err
	}
	s.store.deleteSilently(k)
	return nil
}

// Compact deletes the history of changes and all continue tokens. A watch from an older resource version and a list with a
// continue token then fail with code 410 and reason Expired.
func (s *Server) Compact() {
	s.store.compactHistory()
	s.pages.expireAll()
}

// ResourceVersion returns the resource version of the last change on the server.
func (s *Server) ResourceVersion() int64 { return s.store.currentVersion() }
