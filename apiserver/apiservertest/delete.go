// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiservertest

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// hasGracePeriod reports whether the deletion grace period of the object is above zero. Such an object stays until its node
// deletes it with a grace period of zero.
func hasGracePeriod(obj Object) bool {
	grace := obj.GetDeletionGracePeriodSeconds()
	return grace != nil && *grace > 0
}

// deleteObject executes a DELETE request. It returns the object if it is still terminating, and a Status if it was removed.
// For some kinds it returns the removed object instead of a Status.
func (c *call) deleteObject() (runtime.Object, error) {
	o, err := c.decodeDeleteOptions()
	if err != nil {
		return nil, err
	}
	obj, removed, err := c.deleteStored(o)
	if err != nil || !removed || c.kind.returnsDeleted {
		return orNone(obj), err
	}
	return &metav1.Status{Status: metav1.StatusSuccess, Code: http.StatusOK, Details: &metav1.StatusDetails{
		Name: c.name, Group: c.kind.Group, Kind: c.kind.resource, UID: obj.GetUID(),
	}}, nil
}

// deleteCollection executes a DELETE request for all objects that its selectors select. It returns a list of these objects.
func (c *call) deleteCollection() (runtime.Object, error) {
	o, err := c.decodeDeleteOptions()
	if err != nil {
		return nil, err
	}
	matches, err := c.parseSelectors()
	if err != nil {
		return nil, err
	}
	objects, version := c.server.store.listObjects(c.kind.storedKind(), matches)
	var deleted []Object
	for _, obj := range objects {
		one := *c
		one.namespace, one.name = obj.GetNamespace(), obj.GetName()
		obj, _, err := one.deleteStored(o)
		switch {
		case apierrors.IsNotFound(err): // another client has deleted it
		case err != nil:
			return nil, err
		default:
			deleted = append(deleted, obj)
		}
	}
	return c.buildList(deleted, version)
}

// decodeDeleteOptions returns the options in the body and the query of a DELETE request.
func (c *call) decodeDeleteOptions() (o metav1.DeleteOptions, err error) {
	if len(c.body) > 0 {
		if _, err := c.decodeBody(&o); err != nil {
			return o, err
		}
	}
	if grace := c.r.URL.Query().Get("gracePeriodSeconds"); grace != "" {
		n, err := strconv.ParseInt(grace, 10, 64)
		if err != nil {
			return o, apierrors.NewBadRequest(err.Error())
		}
		o.GracePeriodSeconds = &n
	}
	c.dryRun = c.dryRun || len(o.DryRun) > 0
	return o, nil
}

// deleteStored deletes the stored object of the request, with the delete options o. If finalizers or a grace period delay
// the removal, removed is false and obj is the terminating object.
func (c *call) deleteStored(o metav1.DeleteOptions) (obj Object, removed bool, err error) {
	obj, err = c.editStored(func(before Object) (Object, error) {
		if err := c.checkPreconditions(o.Preconditions, before); err != nil {
			return nil, err
		}
		if err := c.callAdmit(before, nil); err != nil {
			return nil, err
		}
		after := afterDeletion(before, o.GracePeriodSeconds, time.Now())
		removed = after == nil
		return after, nil
	})
	return obj, removed, err
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

// afterDeletion returns the object that remains after a DELETE request, or nil if none remains.
func afterDeletion(before Object, graceSeconds *int64, now time.Time) Object {
	if pod, ok := before.(*corev1.Pod); ok {
		grace := deletionGrace(pod, graceSeconds)
		if was := pod.DeletionGracePeriodSeconds; pod.DeletionTimestamp != nil && was != nil {
			if graceSeconds == nil && *was > 0 || grace >= *was && *was > 0 {
				return before // only a shorter grace period has an effect
			}
		}
		if grace > 0 {
			return terminatingPod(pod, grace, now)
		}
	}
	if !hasFinalizers(before) {
		return nil
	}
	obj := cloneObject(before)
	if namespace, ok := obj.(*corev1.Namespace); ok {
		namespace.Status.Phase = corev1.NamespaceTerminating
	}
	if obj.GetDeletionTimestamp() == nil {
		if obj.GetGeneration() > 0 {
			obj.SetGeneration(obj.GetGeneration() + 1)
		}
		at, zero := metav1.NewTime(now.Truncate(time.Second)), int64(0)
		obj.SetDeletionTimestamp(&at)
		obj.SetDeletionGracePeriodSeconds(&zero)
	}
	return obj
}

// deletionGrace returns the grace period of a pod deletion in seconds. A request without a grace period uses that of the pod.
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

// terminatingPod returns a copy of the pod that terminates grace seconds after its first deletion. If this time has passed,
// the copy terminates now.
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
