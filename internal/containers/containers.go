// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package containers finds the containers of a pod's spec by kind and by name.
package containers

import (
	"iter"

	corev1 "k8s.io/api/core/v1"
)

// All yields the init and the regular containers of a pod, but not the ephemeral ones.
func All(pod *corev1.PodSpec) iter.Seq[*corev1.Container] {
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

// Named returns the container of a name, of whatever kind, or nil. All containers of a pod have names of their own.
func Named(pod *corev1.PodSpec, name string) *corev1.Container {
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

// IsInit reports whether an init container of the pod has the name of c.
func IsInit(pod *corev1.PodSpec, c *corev1.Container) bool {
	for i := range pod.InitContainers {
		if pod.InitContainers[i].Name == c.Name {
			return true
		}
	}
	return false
}

// IsSidecar reports whether an init container runs along with the regular ones instead of terminating before them. It must
// not be asked about regular containers, which may have the same restart policy. Source: KEP-753.
func IsSidecar(init *corev1.Container) bool {
	return init.RestartPolicy != nil && *init.RestartPolicy == corev1.ContainerRestartPolicyAlways
}
