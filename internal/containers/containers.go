// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package containers finds containers of a pod spec by list and by name. Package podfield describes their fields.
package containers

import (
	"iter"

	corev1 "k8s.io/api/core/v1"
)

// Kind is the list of a pod spec that contains a container.
type Kind int

// The three lists of containers in a pod spec.
const (
	Init Kind = iota
	Regular
	Ephemeral
)

// Container is a container of a pod spec, and its position.
type Container struct {
	*corev1.Container
	Kind  Kind
	Index int // index in the list of its kind
}

// IsSidecar reports whether c is a sidecar: an init container that continues to run while later containers start and run
// (KEP-753).
func (c Container) IsSidecar() bool { return c.Kind == Init && IsSidecar(c.Container) }

// All yields all containers of a pod: first the init containers, then the regular containers, then the ephemeral containers.
func All(pod *corev1.PodSpec) iter.Seq[Container] {
	return func(yield func(Container) bool) {
		for i := range pod.InitContainers {
			if !yield(Container{&pod.InitContainers[i], Init, i}) {
				return
			}
		}
		for i := range pod.Containers {
			if !yield(Container{&pod.Containers[i], Regular, i}) {
				return
			}
		}
		for i := range pod.EphemeralContainers {
			// Both types have the same fields, so that the pointer can be converted.
			c := (*corev1.Container)(&pod.EphemeralContainers[i].EphemeralContainerCommon)
			if !yield(Container{c, Ephemeral, i}) {
				return
			}
		}
	}
}

// NotEphemeral yields the init containers, and then the regular containers, of a pod. It is for code about resources, which
// ephemeral containers do not have.
func NotEphemeral(pod *corev1.PodSpec) iter.Seq[*corev1.Container] {
	return func(yield func(*corev1.Container) bool) {
		for c := range All(pod) {
			if c.Kind == Ephemeral || !yield(c.Container) {
				return
			}
		}
	}
}

// Find returns the container called name, which may be an init, regular or ephemeral container. If there is none, the field
// Container of the result is nil.
func Find(pod *corev1.PodSpec, name string) Container {
	for c := range All(pod) {
		if c.Name == name {
			return c
		}
	}
	return Container{}
}

// Named returns the container called name, which may be an init, regular or ephemeral container. It returns nil if there is
// none.
func Named(pod *corev1.PodSpec, name string) *corev1.Container { return Find(pod, name).Container }

// IsInit reports whether the pod has an init container with the name of container.
func IsInit(pod *corev1.PodSpec, container *corev1.Container) bool {
	found := Find(pod, container.Name)
	return found.Container != nil && found.Kind == Init
}

// IsSidecar reports whether an init container is a sidecar: it continues to run beside the regular containers (KEP-753). Do
// not call it for a regular container, which may have the same restart policy.
func IsSidecar(init *corev1.Container) bool {
	return init.RestartPolicy != nil && *init.RestartPolicy == corev1.ContainerRestartPolicyAlways
}
