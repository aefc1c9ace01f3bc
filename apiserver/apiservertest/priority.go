// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiservertest

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// systemPriority returns the value of a built-in priority class, such as system-node-critical. ok is false for any other
// class.
func systemPriority(class string) (value int32, ok bool) {
	switch class {
	case "system-node-critical":
		return 2_000_001_000, true
	case "system-cluster-critical":
		return 2_000_000_000, true
	default:
		return 0, false
	}
}

// setPriorityLocked sets the priority and preemption policy of a new pod from its PriorityClass. The caller holds the lock of the
// store. Source: plugin/pkg/admission/priority.
func (c *call) setPriorityLocked(pod *corev1.Pod) error {
	if pod.Spec.Priority != nil {
		return nil
	}
	class := &schedulingv1.PriorityClass{}
	switch value, ok := systemPriority(pod.Spec.PriorityClassName); {
	case ok:
		class.Value = value
	case pod.Spec.PriorityClassName == "":
		for _, obj := range c.server.store.listLocked(c.server.kinds.kindOf(class), func(Object) bool { return true }) {
			if known := obj.(*schedulingv1.PriorityClass); known.GlobalDefault && (class.Name == "" || known.Value < class.Value) {
				class = known
			}
		}
		pod.Spec.PriorityClassName = class.Name
	default:
		obj, err := c.server.store.getLocked(key{kind: c.server.kinds.kindOf(class), name: pod.Spec.PriorityClassName})
		if err != nil {
			return apierrors.NewForbidden(c.kind.groupResource(), pod.Name,
				fmt.Errorf("no PriorityClass with name %v was found", pod.Spec.PriorityClassName))
		}
		class = obj.(*schedulingv1.PriorityClass)
	}
	value := class.Value
	pod.Spec.Priority = &value
	if pod.Spec.PreemptionPolicy == nil {
		policy := corev1.PreemptLowerPriority
		if class.PreemptionPolicy != nil {
			policy = *class.PreemptionPolicy
		}
		pod.Spec.PreemptionPolicy = &policy
	}
	return nil
}
