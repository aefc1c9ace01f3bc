// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podview

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
)

// A container may ask, by a rule about its exit code, for a restart of all containers of its pod in their sandbox. Each
// such restart begins a generation, and every container instance carries the generation that it was created in: instances
// of earlier ones are stopped, and count for nothing but the restart count and the last state. So a restart that an agent
// did not live to finish is finished by the next one. Source: KEP-5532, computePodActions in
// pkg/kubelet/kuberuntime/kuberuntime_manager.go, which removes the containers instead.

// AnnotationGeneration carries the restart-all generation of a container instance: the number of restarts of all containers
// that the pod had when it was created. It is not there for zero.
const AnnotationGeneration = "nodeagent/round"

// GenerationOf returns the restart-all generation of a container instance.
func GenerationOf(c *cri.Container) int {
	text, ok := c.Annotations[AnnotationGeneration]
	if !ok {
		return 0 // without the cost of an error of Atoi
	}
	n, _ := strconv.Atoi(text) // what does not parse is the first one
	return n
}

// generation returns the generation that counts, and whether it was asked for and no instance of it is there yet.
func generation(pod *corev1.Pod, observed *cri.Pod) (n int, fresh bool) {
	for i := range observed.Containers {
		n = max(n, GenerationOf(&observed.Containers[i]))
	}
	for _, specs := range [...][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range specs {
			if len(specs[i].RestartPolicyRules) == 0 {
				continue
			}
			last := observed.NewestContainer(specs[i].Name)
			if last != nil && GenerationOf(last) == n && RestartsAll(&specs[i], last) {
				return n + 1, true
			}
		}
	}
	return n, false
}

// RestartsAll reports whether a container exited in a way that asks for a restart of all.
func RestartsAll(c *corev1.Container, last *cri.Container) bool {
	return last.State == cri.ContainerExited && c.RestartPolicy != nil &&
		ruleAction(c.RestartPolicyRules, last.ExitCode) == corev1.ContainerRestartRuleActionRestartAllContainers
}
