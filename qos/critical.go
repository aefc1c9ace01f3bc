// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package qos

import corev1 "k8s.io/api/core/v1"

// What marks a pod as critical: pkg/kubelet/types/constants.go and pkg/apis/scheduling/types.go.
const (
	sourceAnnotation = "kubernetes.io/config.source" // set by whoever feeds pods to the node
	sourceAPI        = "api"
	criticalPriority = 2_000_000_000
	nodeCritical     = "system-node-critical"
)

// IsStatic reports whether the pod comes from a file or an HTTP endpoint: its annotation kubernetes.io/config.source names
// a source other than "api".
func IsStatic(pod *corev1.Pod) bool {
	source, ok := pod.Annotations[sourceAnnotation]
	return ok && source != sourceAPI
}

// IsMirror reports whether the pod stands in the API server for a static pod: it has the annotation
// kubernetes.io/config.mirror, whatever its value.
func IsMirror(pod *corev1.Pod) bool {
	_, ok := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return ok
}

// IsCritical reports whether the node should keep the pod when it evicts others: a static or mirror pod, or one of
// priority 2000000000 and above.
func IsCritical(pod *corev1.Pod) bool {
	return pod.Spec.Priority != nil && *pod.Spec.Priority >= criticalPriority || IsStatic(pod) || IsMirror(pod)
}

// IsNodeCritical reports whether the node cannot work without the pod: it is critical and of the priority class
// system-node-critical. Neither of the two is enough alone.
func IsNodeCritical(pod *corev1.Pod) bool {
	return pod.Spec.PriorityClassName == nodeCritical && IsCritical(pod)
}
