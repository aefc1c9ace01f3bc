// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podevict

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/qos"
)

// Refusal is why a pod is not admitted.
type Refusal struct {
	Reason  string
	Message string
}

// Error returns the message.
func (r *Refusal) Error() string { return r.Message }

// Admit returns a [*Refusal] for a pod that is not to run while the node has these conditions, and nil for one that may. Critical pods
// may. Under nothing but memory pressure so may all that request something, and those that tolerate the taint of that condition.
// Source: Admit in pkg/kubelet/eviction/eviction_manager.go.
//
// A pod that was evicted and is held back since then, see [Options].EvictStatic, may run when there is no condition any more; held says
// that it is one.
func Admit(pod *corev1.Pod, conditions []eviction.Condition, held bool) error {
	onlyMemory := len(conditions) == 1 && conditions[0] == eviction.MemoryPressure
	switch {
	case len(conditions) == 0:
		return nil
	case held && !isCritical(pod, true):
	case qos.IsCritical(pod):
		return nil
	case onlyMemory && qos.StatusClass(pod) != corev1.PodQOSBestEffort, onlyMemory && toleratesMemoryPressure(pod):
		return nil
	}
	return &Refusal{Reason: ReasonEvicted, Message: fmt.Sprintf("The node had condition: %v. ", conditions)}
}

// toleratesMemoryPressure reports whether a pod tolerates the taint of a node under memory pressure, which has no value.
func toleratesMemoryPressure(pod *corev1.Pod) bool {
	for i := range pod.Spec.Tolerations {
		t := &pod.Spec.Tolerations[i]
		effect := t.Effect == "" || t.Effect == corev1.TaintEffectNoSchedule
		key := t.Key == "" || t.Key == corev1.TaintNodeMemoryPressure
		equal := (t.Operator == "" || t.Operator == corev1.TolerationOpEqual) && t.Value == ""
		if effect && key && (equal || t.Operator == corev1.TolerationOpExists) {
			return true
		}
	}
	return false
}
