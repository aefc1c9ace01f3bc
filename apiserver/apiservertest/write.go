// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiservertest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// dispatchVerb calls the method for the verb of the request, and returns the object and HTTP status code of the response.
func (c *call) dispatchVerb() (obj runtime.Object, code int, err error) {
	if !c.hasSubresource() {
		return nil, 0, apierrors.NewGenericServerResponse(http.StatusNotFound, c.verb, c.kind.groupResource(), c.name,
			"the server could not find the requested resource", 0, true)
	}
	switch c.subresource {
	case "token", "binding", "eviction":
		if c.verb != "create" {
			return nil, 0, apierrors.NewMethodNotSupported(c.kind.groupResource(), c.verb)
		}
		obj, err := c.createSubresource()
		return obj, http.StatusCreated, err
	case "scale":
		obj, err := c.serveScale()
		return obj, http.StatusOK, err
	case "approval", "ephemeralcontainers", "finalize", "resize":
		if c.verb == "create" {
			return nil, 0, apierrors.NewMethodNotSupported(c.kind.groupResource(), c.verb)
		}
	}
	switch c.verb {
	case "get":
		obj, err := c.server.store.getObject(c.objectKey())
		return orNone(obj), http.StatusOK, err
	case "list":
		obj, err := c.listObjects()
		return obj, http.StatusOK, err
	case "watch":
		return nil, 0, c.watchObjects() // a watch sends its response itself
	case "create":
		obj, err := c.createObject()
		return orNone(obj), http.StatusCreated, err
	case "update":
		obj, err := c.updateObject()
		return orNone(obj), http.StatusOK, err
	case "patch":
		obj, err := c.patchObject()
		return orNone(obj), http.StatusOK, err
	case "deletecollection":
		obj, err := c.deleteCollection()
		return obj, http.StatusOK, err
	default:
		obj, err := c.deleteObject()
		return obj, http.StatusOK, err
	}
}

// createSubresource creates the object in the body of a POST request for a subresource of an object.
func (c *call) createSubresource() (runtime.Object, error) {
	switch c.subresource {
	case "token":
		return c.createToken()
	case "binding":
		return c.createBinding()
	default:
		return c.createEviction()
	}
}

// orNone returns obj, or an untyped nil if obj is nil.
func orNone(obj Object) runtime.Object {
	if obj == nil {
		return nil
	}
	return obj
}

// hasSubresource reports whether objects of the kind have the subresource of the request. It returns true for a request
// without a subresource.
func (c *call) hasSubresource() bool {
	return c.subresource == "" || c.subresource == "status" && c.kind.hasStatus && c.verb != "create" || slices.Contains(c.kind.subresources, c.subresource)
}

func (c *call) objectKey() key { return key{c.kind.storedKind(), c.namespace, c.name} }

func (c *call) invalidError(name, path, detail string) error {
	return apierrors.NewInvalid(c.kind.GroupKind(), name, field.ErrorList{field.Invalid(field.NewPath(path), "", detail)})
}

// callAdmit calls the hook Options.Admit, and returns its error as an API error. For a deletion, obj is nil.
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
	c.prepareCreate(obj)
	return c.server.store.createObject(obj, c.dryRun, func(obj Object) error {
		if pod, ok := obj.(*corev1.Pod); ok {
			if err := c.setPriorityLocked(pod); err != nil {
				return err
			}
		}
		return c.callAdmit(nil, obj)
	})
}

// createObject stores a new object, unless admit returns an error for it. A dry run returns the object without storing it.
func (s *store) createObject(obj Object, dryRun bool, admit func(Object) error) (Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fillLocked(obj)
	k, err := s.keyOf(obj)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if _, exists := s.objects[k.kind][k]; exists {
		return nil, apierrors.NewAlreadyExists(k.kind.groupResource(), k.name)
	}
	if err := admit(obj); err != nil || dryRun {
		return obj, err
	}
	return s.putLocked(k, nil, obj), nil
}

// prepareCreate resets the status and other fields that a client cannot set when it creates an object.
func (c *call) prepareCreate(obj Object) {
	obj.SetGeneration(0)
	if c.kind.generation {
		obj.SetGeneration(1)
	}
	switch obj := obj.(type) {
	case *corev1.Node: // the agent registers it with a status
	case *corev1.Pod:
		obj.Status = corev1.PodStatus{Phase: corev1.PodPending}
	default:
		if c.kind.hasStatus {
			clearStatus(obj)
		}
	}
}

// updateObject replaces the stored object, or its subresource, by the object in the body of a PUT request.
func (c *call) updateObject() (Object, error) {
	obj, err := c.decodeObject()
	if err != nil {
		return nil, err
	}
	return c.editStored(func(before Object) (Object, error) {
		if uid := obj.GetUID(); uid != "" && uid != before.GetUID() {
			return nil, c.conflictError(fmt.Sprintf("Precondition failed: UID in precondition: %s, UID in object meta: %s", uid, before.GetUID()))
		}
		if obj.GetResourceVersion() == "" && c.kind.versioned {
			return nil, c.invalidError(c.name, "metadata.resourceVersion", "must be specified for an update")
		}
		return c.prepareUpdate(before, obj)
	})
}

// editStored replaces the object of the request by the result of edit, or removes it if the result is nil. A missing object is an
// error.
func (c *call) editStored(edit func(before Object) (Object, error)) (Object, error) {
	return c.server.store.updateObject(c.objectKey(), c.dryRun, func(before Object) (Object, error) {
		if before == nil {
			return nil, apierrors.NewNotFound(c.kind.groupResource(), c.name)
		}
		return edit(before)
	})
}

func (c *call) conflictError(text string) error {
	return apierrors.NewConflict(c.kind.groupResource(), c.name, fmt.Errorf("%s", text))
}

// prepareUpdate returns the object that an update or patch stores, or nil if the object must be removed.
func (c *call) prepareUpdate(before, obj Object) (Object, error) {
	if v := obj.GetResourceVersion(); v != "" && v != before.GetResourceVersion() {
		return nil, c.conflictError("the object has been modified; please apply your changes to the latest version and try again")
	}
	if uid := obj.GetUID(); uid != "" && uid != before.GetUID() {
		return nil, c.invalidError(c.name, "metadata.uid", "field is immutable")
	}
	// fields that clients cannot change, or that belong to another subresource, keep their values
	obj.SetUID(before.GetUID())
	obj.SetResourceVersion(before.GetResourceVersion())
	obj.SetCreationTimestamp(before.GetCreationTimestamp())
	obj.SetDeletionTimestamp(before.GetDeletionTimestamp())
	obj.SetDeletionGracePeriodSeconds(before.GetDeletionGracePeriodSeconds())
	obj.SetGeneration(before.GetGeneration())
	if err := c.restoreOtherFields(before, obj); err != nil {
		return nil, err
	}
	setDefaults(obj)
	if c.kind.generation && !equalSpecs(before, obj) {
		obj.SetGeneration(before.GetGeneration() + 1)
	}
	if err := c.callAdmit(before, obj); err != nil {
		return nil, err
	}
	if obj.GetDeletionTimestamp() != nil && !hasFinalizers(obj) && !hasGracePeriod(obj) {
		return nil, nil // no finalizer or grace period keeps the object
	}
	return obj, nil
}

// restoreOtherFields restores the fields of obj that the subresource of the request must not change. before is the stored
// object, which has the previous values.
func (c *call) restoreOtherFields(before, obj Object) error {
	switch c.subresource {
	case "":
		if c.kind.hasStatus {
			copyStatus(obj, before)
		}
	case "resize", "ephemeralcontainers":
		return c.restorePod(before.(*corev1.Pod), obj.(*corev1.Pod))
	case "finalize":
		finalizers := obj.(*corev1.Namespace).Spec.Finalizers
		before.(*corev1.Namespace).DeepCopyInto(obj.(*corev1.Namespace))
		obj.(*corev1.Namespace).Spec.Finalizers = finalizers
	default:
		keepStatusAndMetadata(obj, before)
		if pod, ok := obj.(*corev1.Pod); ok {
			pod.OwnerReferences = before.GetOwnerReferences()
		}
	}
	return nil
}

// restorePod restores the fields of pod that a resize or ephemeralcontainers request must not change. before is the stored
// pod. It is an error to remove or change an ephemeral container.
func (c *call) restorePod(before, pod *corev1.Pod) error {
	spec := pod.Spec
	before.DeepCopyInto(pod)
	if c.subresource == "resize" {
		for i := range min(len(pod.Spec.Containers), len(spec.Containers)) {
			pod.Spec.Containers[i].Resources = spec.Containers[i].Resources
		}
		pod.Spec.Resources = spec.Resources
		return nil
	}
	pod.Spec.EphemeralContainers = spec.EphemeralContainers
	setDefaults(pod)
	for _, old := range before.Spec.EphemeralContainers {
		if !slices.ContainsFunc(pod.Spec.EphemeralContainers, func(e corev1.EphemeralContainer) bool { return reflect.DeepEqual(e, old) }) {
			return c.invalidError(c.name, "spec.ephemeralContainers", fmt.Sprintf("existing ephemeral container %q may not be removed or changed", old.Name))
		}
	}
	return nil
}

// marshalObject returns obj as JSON.
func marshalObject(obj runtime.Object) ([]byte, error) { return json.Marshal(obj) }
