// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"iter"

	corev1 "k8s.io/api/core/v1"
)

// containersOf returns the containers of a pod: init containers, and those of the pod proper, but not ephemeral ones.
func containersOf(pod *corev1.PodSpec) iter.Seq[*corev1.Container] {
	return func(yield func(*corev1.Container) bool) {
		for _, list := range [...][]corev1.Container{pod.InitContainers, pod.Containers} {
			for i := range list {
				if !yield(&list[i]) {
					return
				}
			}
		}
	}
}

// sidecar tells whether an init container runs along with the others instead of ending before them.
func sidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// isInit tells whether c is an init container of the pod itself, not a copy.
func isInit(pod *corev1.PodSpec, c *corev1.Container) bool {
	for i := range pod.InitContainers {
		if &pod.InitContainers[i] == c {
			return true
		}
	}
	return false
}

// containerNamed returns the container of a name, of whatever kind, or nil. All containers of a pod have names of their
// own.
func containerNamed(pod *corev1.PodSpec, name string) *corev1.Container {
	for _, list := range [...][]corev1.Container{pod.Containers, pod.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	for i := range pod.EphemeralContainers {
		if e := &pod.EphemeralContainers[i]; e.Name == name {
			return (*corev1.Container)(&e.EphemeralContainerCommon)
		}
	}
	return nil
}
