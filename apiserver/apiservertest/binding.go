// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiservertest

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// createBinding handles a POST request to the binding subresource, which binds a pod to a node. Source:
// setPodNodeAndMetadata in pkg/registry/core/pod/storage/storage.go.
func (c *call) createBinding() (runtime.Object, error) {
	decoded, err := c.decodeBody(&corev1.Binding{})
	if err != nil {
		return nil, err
	}
	binding, ok := decoded.(*corev1.Binding)
	switch {
	case !ok:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("a %T was sent, not a Binding", decoded))
	case binding.Name != "" && binding.Name != c.name:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("name in URL does not match name in Binding object: %s, %s", c.name, binding.Name))
	case binding.Target.Kind != "" && binding.Target.Kind != "Node":
		return nil, c.invalidError(c.name, "target.kind", `must be empty or "Node"`)
	case binding.Target.Name == "":
		return nil, c.invalidError(c.name, "target.name", "is required")
	}
	if _, err := c.editStored(func(before Object) (Object, error) { return c.bindPod(before, binding) }); err != nil {
		return nil, err
	}
	return &metav1.Status{Status: metav1.StatusSuccess, Code: 201}, nil
}

// bindPod returns a copy of the pod that is bound to the target node, or the error of a real API server.
func (c *call) bindPod(stored Object, binding *corev1.Binding) (Object, error) {
	pod := stored.(*corev1.Pod).DeepCopy()
	switch {
	case binding.UID != "" && binding.UID != pod.UID:
		return nil, c.conflictError(fmt.Sprintf("Precondition failed: UID in precondition: %s, UID in object meta: %s", binding.UID, pod.UID))
	case pod.DeletionTimestamp != nil:
		return nil, c.conflictError(fmt.Sprintf("pod %s is being deleted, cannot be assigned to a host", c.name))
	case pod.Spec.NodeName != "":
		return nil, c.conflictError(fmt.Sprintf("pod %s is already assigned to node %q", c.name, pod.Spec.NodeName))
	case len(pod.Spec.SchedulingGates) > 0:
		return nil, c.conflictError(fmt.Sprintf("pod %s has non-empty .spec.schedulingGates", c.name))
	}
	pod.Spec.NodeName = binding.Target.Name
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	maps.Copy(pod.Annotations, binding.Annotations)
	pod.Status.Conditions = slices.DeleteFunc(pod.Status.Conditions, func(old corev1.PodCondition) bool { return old.Type == corev1.PodScheduled })
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Now().Truncate(time.Second)),
	})
	if err := c.callAdmit(stored, pod); err != nil {
		return nil, err
	}
	return pod, nil
}
