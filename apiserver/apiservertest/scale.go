// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiservertest

import (
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

// serveScale answers a request for the scale subresource of a workload. The result is the Scale of autoscaling/v1.
func (c *call) serveScale() (runtime.Object, error) {
	var obj Object
	var err error
	switch c.verb {
	case "get":
		obj, err = c.server.store.getObject(c.objectKey())
	case "update", "patch":
		obj, err = c.editStored(c.setScale)
	default:
		err = apierrors.NewMethodNotSupported(c.kind.groupResource(), c.verb)
	}
	if err != nil {
		return nil, err
	}
	return scaleOf(obj), nil
}

// setScale returns a copy of before, the stored workload, with the requested number of replicas. The request body is a Scale
// or a patch of a Scale.
func (c *call) setScale(before Object) (Object, error) {
	scale, err := c.requestedScale(before)
	if err != nil {
		return nil, err
	}
	switch {
	case scale.UID != "" && scale.UID != before.GetUID():
		return nil, c.conflictError(fmt.Sprintf("Precondition failed: UID in precondition: %s, UID in object meta: %s", scale.UID, before.GetUID()))
	case scale.ResourceVersion != "" && scale.ResourceVersion != before.GetResourceVersion():
		return nil, c.conflictError("the object has been modified; please apply your changes to the latest version and try again")
	case scale.Spec.Replicas < 0:
		return nil, c.invalidError(c.name, "spec.replicas", "must be greater than or equal to 0")
	}
	obj := cloneObject(before)
	*workloadReplicas(obj).wanted = &scale.Spec.Replicas
	if !equalSpecs(before, obj) {
		obj.SetGeneration(before.GetGeneration() + 1)
	}
	return obj, c.callAdmit(before, obj)
}

// requestedScale returns the Scale that the client requests: the body of a PUT request, or the patched Scale of before, the
// stored workload.
func (c *call) requestedScale(before Object) (*autoscalingv1.Scale, error) {
	if c.verb == "update" {
		decoded, err := c.decodeBody(&autoscalingv1.Scale{})
		if err != nil {
			return nil, err
		}
		scale, ok := decoded.(*autoscalingv1.Scale)
		if !ok || scale.Name != c.name {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("the body is no Scale of %s", c.name))
		}
		return scale, nil
	}
	scale := scaleOf(before)
	original, err := json.Marshal(scale)
	if err != nil {
		return nil, err
	}
	patched, err := c.applyPatchTo(original, scale)
	if err != nil {
		return nil, err
	}
	scale = &autoscalingv1.Scale{}
	if err := json.Unmarshal(patched, scale); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return scale, nil
}

// scaleOf returns the Scale of a workload.
func scaleOf(obj Object) *autoscalingv1.Scale {
	replicas := workloadReplicas(obj)
	scale := &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{
			Name: obj.GetName(), Namespace: obj.GetNamespace(), UID: obj.GetUID(), ResourceVersion: obj.GetResourceVersion(),
			CreationTimestamp: obj.GetCreationTimestamp(),
		},
		Status: autoscalingv1.ScaleStatus{Replicas: replicas.actual, Selector: replicas.selector},
	}
	if *replicas.wanted != nil {
		scale.Spec.Replicas = **replicas.wanted
	}
	return scale
}

// replicas are the fields of a workload that are part of its Scale.
type replicas struct {
	wanted   **int32 // spec.replicas
	actual   int32   // status.replicas
	selector string
}

// workloadReplicas returns the replicas of a workload that has the subresource scale.
func workloadReplicas(obj Object) replicas {
	switch obj := obj.(type) {
	case *appsv1.Deployment:
		return replicas{&obj.Spec.Replicas, obj.Status.Replicas, selectorText(obj.Spec.Selector)}
	case *appsv1.ReplicaSet:
		return replicas{&obj.Spec.Replicas, obj.Status.Replicas, selectorText(obj.Spec.Selector)}
	case *appsv1.StatefulSet:
		return replicas{&obj.Spec.Replicas, obj.Status.Replicas, selectorText(obj.Spec.Selector)}
	default:
		rc := obj.(*corev1.ReplicationController)
		return replicas{&rc.Spec.Replicas, rc.Status.Replicas, labels.SelectorFromSet(rc.Spec.Selector).String()}
	}
}

// selectorText returns the selector in the text form that the status of a Scale has. For an invalid selector it returns "".
func selectorText(selector *metav1.LabelSelector) string {
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return ""
	}
	return parsed.String()
}
