// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podview

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
)

// A restart policy rule of a container can restart all containers of the pod in their sandbox. Each such restart starts a new
// restart-all generation, and each container instance has the generation in which it was created. Instances of earlier
// generations are stopped; they count only for the restart count and the last state. So a restarted agent completes a restart
// that its predecessor has started. Source: KEP-5532, computePodActions in pkg/kubelet/kuberuntime/kuberuntime_manager.go, which
// removes the containers instead.

// AnnotationGeneration is the annotation with the restart-all generation of a container instance: how many restarts of all
// containers preceded its creation. It is absent for zero.
const AnnotationGeneration = "nodeagent/round"

// GenerationOf returns the restart-all generation of a container instance: how many restarts of all containers of its pod
// (RestartAllContainers) preceded its creation.
func GenerationOf(container *cri.Container) int {
	text, ok := container.Annotations[AnnotationGeneration]
	if !ok {
		return 0 // avoids allocating an error in Atoi
	}
	n, _ := strconv.Atoi(text) // an invalid value counts as zero
	return n
}

// currentGeneration returns how often all containers were restarted (RestartAllContainers). requested means that the last
// restart has replaced no container yet.
func currentGeneration(pod *corev1.Pod, observed *cri.Pod) (n int, requested bool) {
	for i := range observed.Containers {
		n = max(n, GenerationOf(&observed.Containers[i]))
	}
	for _, specs := range [...][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range specs {
			if len(specs[i].RestartPolicyRules) == 0 {
				continue
			}
			last := observed.NewestContainer(specs[i].Name)
			if last != nil && GenerationOf(last) == n && RequestsRestartAll(&specs[i], last) {
				return n + 1, true
			}
		}
	}
	return n, false
}

// RequestsRestartAll reports whether the exit of a container requires a restart of all containers of the pod, according to
// its restart rules. last is the newest instance of the container.
func RequestsRestartAll(container *corev1.Container, last *cri.Container) bool {
	return last.State == cri.ContainerExited && container.RestartPolicy != nil &&
		matchRules(container.RestartPolicyRules, last.ExitCode) == corev1.ContainerRestartRuleActionRestartAllContainers
}
