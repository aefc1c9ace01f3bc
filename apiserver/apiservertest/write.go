// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiservertest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// dispatchVerb calls the method for the verb of the request. It returns the object and the HTTP status code for the
// response. obj is nil for a watch, which has already sent its response.
func (c *call) dispatchVerb() (obj runtime.Object, code int, err error) {
	if c.verb == "create" && c.subresource == "token" && c.kind.resource == "serviceaccounts" {
		obj, err := c.createToken()
		return obj, http.StatusCreated, err
	}
	if c.verb == "create" && c.subresource == "binding" && c.kind.resource == "pods" {
		obj, err := c.createBinding()
		return obj, http.StatusCreated, err
	}
	if known := c.hasSubresource(); !known {
		return nil, 0, apierrors.NewGenericServerResponse(http.StatusNotFound, c.verb, c.kind.groupResource(), c.name,
			"the server could not find the requested resource", 0, true)
	}
	switch c.verb {
	case "get":
		obj, err := c.server.store.getObject(c.objectKey())
		return orNone(obj), http.StatusOK, err
	case "list":
		obj, err := c.listObjects()
		return obj, http.StatusOK, err
	case "watch":
		return nil, 0, c.watchObjects()
	case "create":
		obj, err := c.createObject()
		return orNone(obj), http.StatusCreated, err
	case "update":
		obj, err := c.updateObject()
		return orNone(obj), http.StatusOK, err
	case "patch":
		obj, err := c.patchObject()
		return orNone(obj), http.StatusOK, err
	default:
		obj, err := c.deleteObject()
		return obj, http.StatusOK, err
	}
}

// orNone returns obj, or an untyped nil if obj is nil.
func orNone(obj Object) runtime.Object {
	if obj == nil {
		return nil
	}
	return obj
}

// hasSubresource reports whether the server supports the subresource in the path for this kind and verb.
func (c *call) hasSubresource() bool {
	switch c.subresource {
	case "":
		return true
	case "status":
		return c.kind.hasStatus() && c.verb != "create"
	case "resize":
		return c.kind.resource == "pods" && c.verb != "create"
	case "approval":
		return c.kind.resource == "certificatesigningrequests" && c.verb != "create"
	default:
		return false
	}
}

func (c *call) objectKey() key { return key{c.kind, c.namespace, c.name} }

func (c *call) invalidError(name, path, detail string) error {
	return apierrors.NewInvalid(c.kind.GroupKind(), name, field.ErrorList{field.Invalid(field.NewPath(path), "", detail)})
}

// callAdmit calls the hook Options.Admit with the stored object and a copy of the new object, and returns its error as an
// API error. obj is nil for a deletion.
func (c *call) callAdmit(before, obj Object) error {
	if c.server.opts.Admit == nil {
		return nil
	}
	if obj != nil {
		obj = cloneObject(obj)
	}
	err := c.server.opts.Admit(c.verb, before, obj)
	if _, ok := err.(apierrors.APIStatus); ok || err == nil {
		return err
	}
	return apierrors.NewForbidden(c.kind.groupResource(), c.name, err)
}

// createObject stores the object in the body of a POST request as a new object.
func (c *call) createObject() (Object, error) {
	obj, err := c.decodeObject()
	if err != nil {
		return nil, err
	}
	switch {
	case c.kind.namespaced && c.namespace == "":
		return nil, apierrors.NewBadRequest("an empty namespace may not be set during creation")
	case obj.GetResourceVersion() != "":
		return nil, apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	case obj.GetName() == "" && obj.GetGenerateName() == "":
		return nil, c.invalidError("", "metadata.name", "name or generateName is required")
	}
	obj.SetUID("")
	obj.SetCreationTimestamp(metav1.Time{})
	obj.SetDeletionTimestamp(nil)
	obj.SetDeletionGracePeriodSeconds(nil)
	prepareCreate(obj)
	return c.server.store.createObject(obj, func(obj Object) error { return c.callAdmit(nil, obj) })
}

// createObject stores a new object, unless admit returns an error for it.
func (s *store) createObject(obj Object, admit func(Object) error) (Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fillLocked(obj)
	k, err := s.keyOf(obj)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if _, exists := s.objects[k]; exists {
		return nil, apierrors.NewAlreadyExists(k.kind.groupResource(), k.name)
	}
	if err := admit(obj); err != nil {
		return nil, err
	}
	return s.putLocked(k, nil, obj), nil
}

// prepareCreate resets the status and other fields that a client cannot set when it creates an object.
func prepareCreate(obj Object) {
	switch obj := obj.(type) {
	case *corev1.Pod:
		obj.Generation = 1
		obj.Status = corev1.PodStatus{Phase: corev1.PodPending}
	case *corev1.Node:
		obj.Generation = 0
	default:
		if status := reflect.ValueOf(obj).Elem().FieldByName("Status"); status.IsValid() {
			status.SetZero()
		}
	}
}

// updateObject replaces the stored object by the object in the body of a PUT request. For a subresource it replaces only the
// part that this writes.
func (c *call) updateObject() (Object, error) {
	obj, err := c.decodeObject()
	if err != nil {
		return nil, err
	}
	return c.server.store.updateObject(c.objectKey(), func(before Object) (Object, error) {
		if before == nil {
			return nil, apierrors.NewNotFound(c.kind.groupResource(), c.name)
		}
		if uid := obj.GetUID(); uid != "" && uid != before.GetUID() {
			return nil, c.conflictError(fmt.Sprintf("Precondition failed: UID in precondition: %s, UID in object meta: %s", uid, before.GetUID()))
		}
		if obj.GetResourceVersion() == "" && c.kind.versioned {
			return nil, c.invalidError(c.name, "metadata.resourceVersion", "must be specified for an update")
		}
		return c.prepareUpdate(before, obj)
	})
}

func (c *call) conflictError(text string) error {
	return apierrors.NewConflict(c.kind.groupResource(), c.name, fmt.Errorf("%s", text))
}

// prepareUpdate returns the object to store when an update or patch replaces before by obj. It restores the fields of obj
// that clients cannot change, or that belong to another subresource. If the last finalizer was removed from a deleted
// object, the result is nil, which removes the object.
func (c *call) prepareUpdate(before, obj Object) (Object, error) {
	if v := obj.GetResourceVersion(); v != "" && v != before.GetResourceVersion() {
		return nil, c.conflictError("the object has been modified; please apply your changes to the latest version and try again")
	}
	if uid := obj.GetUID(); uid != "" && uid != before.GetUID() {
		return nil, c.invalidError(c.name, "metadata.uid", "field is immutable")
	}
	obj.SetUID(before.GetUID())
	obj.SetResourceVersion(before.GetResourceVersion())
	obj.SetCreationTimestamp(before.GetCreationTimestamp())
	obj.SetDeletionTimestamp(before.GetDeletionTimestamp())
	obj.SetDeletionGracePeriodSeconds(before.GetDeletionGracePeriodSeconds())
	obj.SetGeneration(before.GetGeneration())
	c.restoreOtherFields(before, obj)
	setDefaults(obj)
	if pod, ok := obj.(*corev1.Pod); ok && !reflect.DeepEqual(pod.Spec, before.(*corev1.Pod).Spec) {
		pod.Generation++
	}
	if err := c.callAdmit(before, obj); err != nil {
		return nil, err
	}
	if obj.GetDeletionTimestamp() != nil && len(obj.GetFinalizers()) == 0 && !hasGracePeriod(obj) {
		return nil, nil // no finalizer or grace period keeps the object
	}
	return obj, nil
}

// restoreOtherFields resets all fields of obj that the subresource of the request does not write to their values in before.
func (c *call) restoreOtherFields(before, obj Object) {
	old, is := reflect.ValueOf(before).Elem(), reflect.ValueOf(obj).Elem()
	switch {
	case c.subresource == "" && c.kind.hasStatus():
		is.FieldByName("Status").Set(reflect.ValueOf(cloneObject(before)).Elem().FieldByName("Status"))
	case c.subresource == "resize":
		resources := obj.(*corev1.Pod).DeepCopy().Spec
		pod := before.(*corev1.Pod).DeepCopy()
		for i := range min(len(pod.Spec.Containers), len(resources.Containers)) {
			pod.Spec.Containers[i].Resources = resources.Containers[i].Resources
		}
		pod.Spec.Resources = resources.Resources
		is.Set(reflect.ValueOf(pod).Elem())
	case c.subresource != "":
		for i := range old.NumField() {
			if name := old.Type().Field(i).Name; name != "Status" && name != "ObjectMeta" {
				is.Field(i).Set(reflect.ValueOf(cloneObject(before)).Elem().Field(i))
			}
		}
		if pod, ok := obj.(*corev1.Pod); ok {
			pod.OwnerReferences = before.GetOwnerReferences()
		}
	}
}

// hasGracePeriod reports whether a deleted object stays until its node deletes it with a grace period of zero.
func hasGracePeriod(obj Object) bool {
	grace := obj.GetDeletionGracePeriodSeconds()
	return grace != nil && *grace > 0
}

// deleteObject executes a DELETE request. It returns the deleted object, which may still be terminating.
func (c *call) deleteObject() (runtime.Object, error) {
	var o metav1.DeleteOptions
	if len(c.body) > 0 {
		if _, err := c.decodeBody(&o); err != nil {
			return nil, err
		}
	}
	if grace := c.r.URL.Query().Get("gracePeriodSeconds"); grace != "" {
		n, err := strconv.ParseInt(grace, 10, 64)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		o.GracePeriodSeconds = &n
	}
	obj, err := c.server.store.updateObject(c.objectKey(), func(before Object) (Object, error) {
		if before == nil {
			return nil, apierrors.NewNotFound(c.kind.groupResource(), c.name)
		}
		if err := c.checkPreconditions(o.Preconditions, before); err != nil {
			return nil, err
		}
		if err := c.callAdmit(before, nil); err != nil {
			return nil, err
		}
		return afterDeletion(before, o.GracePeriodSeconds, time.Now()), nil
	})
	return orNone(obj), err
}

func (c *call) checkPreconditions(preconditions *metav1.Preconditions, obj Object) error {
	switch {
	case preconditions == nil:
	case preconditions.UID != nil && *preconditions.UID != obj.GetUID():
		return c.conflictError(fmt.Sprintf("the UID in the precondition (%s) does not match the UID in record (%s)", *preconditions.UID, obj.GetUID()))
	case preconditions.ResourceVersion != nil && *preconditions.ResourceVersion != obj.GetResourceVersion():
		return c.conflictError(fmt.Sprintf("the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s)",
			*preconditions.ResourceVersion, obj.GetResourceVersion()))
	}
	return nil
}

// afterDeletion returns the object that remains after a DELETE request for the object before, or nil if none remains.
// requested is the grace period of the request in seconds; nil means the grace period in the spec of the pod.
func afterDeletion(before Object, requested *int64, now time.Time) Object {
	if pod, ok := before.(*corev1.Pod); ok {
		grace := deletionGrace(pod, requested)
		if was := pod.DeletionGracePeriodSeconds; pod.DeletionTimestamp != nil && was != nil {
			if requested == nil && *was > 0 || grace >= *was && *was > 0 {
				return before // only a shorter grace period has an effect
			}
		}
		if grace > 0 {
			return terminatingPod(pod, grace, now)
		}
	}
	if len(before.GetFinalizers()) == 0 {
		return nil
	}
	obj := cloneObject(before)
	if obj.GetDeletionTimestamp() == nil {
		at, zero := metav1.NewTime(now.Truncate(time.Second)), int64(0)
		obj.SetDeletionTimestamp(&at)
		obj.SetDeletionGracePeriodSeconds(&zero)
	}
	return obj
}

// deletionGrace returns the grace period of a pod deletion in seconds. requested is the grace period of the request; nil means
// the grace period in the spec of the pod.
func deletionGrace(pod *corev1.Pod, requested *int64) int64 {
	grace := int64(0)
	switch {
	case pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded:
	case requested != nil:
		grace = *requested
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		grace = *pod.Spec.TerminationGracePeriodSeconds
	}
	if grace < 0 {
		grace = 1
	}
	return grace
}

// terminatingPod returns a copy of the pod with a grace period of grace seconds. Its deletion timestamp is that many seconds
// after the start of the deletion.
func terminatingPod(pod *corev1.Pod, grace int64, now time.Time) Object {
	next := pod.DeepCopy()
	began := now
	if was := pod.DeletionTimestamp; was != nil && pod.DeletionGracePeriodSeconds != nil {
		began = was.Add(-time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second)
	} else if next.Generation > 0 {
		next.Generation++
	}
	at := began.Add(time.Duration(grace) * time.Second)
	if at.Before(now) {
		at, grace = now, 1
	}
	deletion := metav1.NewTime(at.Truncate(time.Second))
	next.DeletionTimestamp, next.DeletionGracePeriodSeconds = &deletion, &grace
	return next
}

// marshalObject returns obj as JSON.
func marshalObject(obj runtime.Object) ([]byte, error) { return json.Marshal(obj) }
