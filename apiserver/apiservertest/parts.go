// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiservertest

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// clearStatus removes the status of an object, if it has one.
func clearStatus(obj Object) {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		delete(u.Object, "status")
		return
	}
	if status := reflect.ValueOf(obj).Elem().FieldByName("Status"); status.IsValid() {
		status.SetZero()
	}
}

// copyStatus replaces the status of obj by a copy of the status of from. The objects have the same kind.
func copyStatus(obj, from Object) {
	from = cloneObject(from)
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		reflect.ValueOf(obj).Elem().FieldByName("Status").Set(reflect.ValueOf(from).Elem().FieldByName("Status"))
		return
	}
	delete(u.Object, "status")
	if status, exists := from.(*unstructured.Unstructured).Object["status"]; exists {
		u.Object["status"] = status
	}
}

// keepStatusAndMetadata restores all fields of obj except status and metadata from before.
func keepStatusAndMetadata(obj, before Object) {
	before = cloneObject(before)
	if u, ok := obj.(*unstructured.Unstructured); ok {
		// of a custom resource, a real API server takes the status only
		copyStatus(before, obj)
		u.Object = before.(*unstructured.Unstructured).Object
		return
	}
	old, is := reflect.ValueOf(before).Elem(), reflect.ValueOf(obj).Elem()
	for i := range old.NumField() {
		if name := old.Type().Field(i).Name; name != "Status" && name != "ObjectMeta" {
			is.Field(i).Set(old.Field(i))
		}
	}
}

// equalSpecs reports whether all fields of two objects of a kind are equal, apart from metadata and status.
func equalSpecs(a, b Object) bool {
	if u, ok := a.(*unstructured.Unstructured); ok {
		return reflect.DeepEqual(specFields(u), specFields(b.(*unstructured.Unstructured)))
	}
	one, two := reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem()
	for i := range one.NumField() {
		switch one.Type().Field(i).Name {
		case "TypeMeta", "ObjectMeta", "Status":
		default:
			if !reflect.DeepEqual(one.Field(i).Interface(), two.Field(i).Interface()) {
				return false
			}
		}
	}
	return true
}

// specFields returns the fields of a custom resource other than its metadata and status.
func specFields(u *unstructured.Unstructured) map[string]any {
	fields := map[string]any{}
	for name, value := range u.Object {
		if name != "metadata" && name != "status" {
			fields[name] = value
		}
	}
	return fields
}

// hasFinalizers reports whether the object has finalizers, which delay its removal. A namespace can also have finalizers in
// its spec.
func hasFinalizers(obj Object) bool {
	namespace, ok := obj.(*corev1.Namespace)
	return len(obj.GetFinalizers()) > 0 || ok && len(namespace.Spec.Finalizers) > 0
}
