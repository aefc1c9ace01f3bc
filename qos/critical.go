// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package qos

import corev1 "k8s.io/api/core/v1"

// Annotation values and priorities that make a pod critical: pkg/kubelet/types/constants.go and pkg/apis/scheduling/types.go.
const (
	sourceAnnotation = "kubernetes.io/config.source" // set by the source of the pod
	sourceAPI        = "api"
	criticalPriority = 2_000_000_000
	nodeCritical     = "system-node-critical"
)

// IsStatic reports whether the pod comes from a manifest file or an HTTP endpoint. Such a pod has the annotation
// kubernetes.io/config.source with a value other than "api".
func IsStatic(pod *corev1.Pod) bool {
	source, ok := pod.Annotations[sourceAnnotation]
	return ok && source != sourceAPI
}

// IsMirror reports whether the pod is a mirror pod, which represents a static pod in the API server. A mirror pod has the
// annotation kubernetes.io/config.mirror.
func IsMirror(pod *corev1.Pod) bool {
	_, ok := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return ok
}

// IsCritical reports whether the pod is static, is a mirror pod, or has a priority of at least 2000000000. The node evicts
// and preempts all other pods first.
func IsCritical(pod *corev1.Pod) bool {
	return pod.Spec.Priority != nil && *pod.Spec.Priority >= criticalPriority || IsStatic(pod) || IsMirror(pod)
}

// IsNodeCritical reports whether the node needs the pod in order to work. Such a pod is critical, see [IsCritical], and has
// the priority class system-node-critical.
func IsNodeCritical(pod *corev1.Pod) bool {
	return pod.Spec.PriorityClassName == nodeCritical && IsCritical(pod)
}
