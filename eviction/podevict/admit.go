// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podevict

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/qos"
)

// Refusal is the error for a pod that is not admitted under pressure. It becomes reason and message of the pod status.
type Refusal struct {
	Reason  string
	Message string
}

// Error returns Message.
func (r *Refusal) Error() string { return r.Message }

// Admit returns a [*Refusal] if the pod must not run while the node has these conditions. It admits critical pods. If the
// only condition is memory pressure, it also admits pods that request any resource or tolerate the taint of memory pressure.
// Source: Admit in pkg/kubelet/eviction/eviction_manager.go.
//
// The argument evicted is true for a pod that was evicted and waits until the node has recovered, see [Options].EvictStatic.
// Such a pod is admitted under pressure only if it has a critical priority.
func Admit(pod *corev1.Pod, conditions []eviction.Condition, evicted bool) error {
	onlyMemory := len(conditions) == 1 && conditions[0] == eviction.MemoryPressure
	switch {
	case len(conditions) == 0:
		return nil
	case evicted && !isCritical(pod, true):
	case qos.IsCritical(pod):
		return nil
	case onlyMemory && qos.StatusClass(pod) != corev1.PodQOSBestEffort, onlyMemory && toleratesMemoryPressure(pod):
		return nil
	}
	return &Refusal{Reason: ReasonEvicted, Message: fmt.Sprintf("The node had condition: %v. ", conditions)}
}

// toleratesMemoryPressure reports whether the pod tolerates the taint node.kubernetes.io/memory-pressure:NoSchedule.
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
