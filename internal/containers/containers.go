// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package containers finds the containers of a pod's spec by kind and by name. What their fields can say is known to package
// podfield.
package containers

import (
	"iter"

	corev1 "k8s.io/api/core/v1"
)

// Kind is which of a pod's three lists a container stands in.
type Kind int

// The three lists of containers.
const (
	Init Kind = iota
	Regular
	Ephemeral
)

// Container is a container of a pod with where it stands.
type Container struct {
	*corev1.Container
	Kind  Kind
	Index int // in the list of its kind
}

// IsSidecar reports whether a container is an init container that keeps running beside those that follow it (KEP-753).
func (c Container) IsSidecar() bool { return c.Kind == Init && IsSidecar(c.Container) }

// All yields all containers of a pod: init containers, regular ones, ephemeral ones.
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
			// The two types have the same fields, so that one can stand for the other.
			c := (*corev1.Container)(&pod.EphemeralContainers[i].EphemeralContainerCommon)
			if !yield(Container{c, Ephemeral, i}) {
				return
			}
		}
	}
}

// NotEphemeral yields the init and the regular containers of a pod, which are those that have resources.
func NotEphemeral(pod *corev1.PodSpec) iter.Seq[*corev1.Container] {
	return func(yield func(*corev1.Container) bool) {
		for c := range All(pod) {
			if c.Kind == Ephemeral || !yield(c.Container) {
				return
			}
		}
	}
}

// Find returns the container of a name, whose Container is nil if the pod has none. All containers of a pod have names of
// their own.
func Find(pod *corev1.PodSpec, name string) Container {
	for c := range All(pod) {
		if c.Name == name {
			return c
		}
	}
	return Container{}
}

// Named returns the container of a name, of whatever kind, or nil.
func Named(pod *corev1.PodSpec, name string) *corev1.Container { return Find(pod, name).Container }

// IsInit reports whether an init container of the pod has the name of c.
func IsInit(pod *corev1.PodSpec, c *corev1.Container) bool {
	found := Find(pod, c.Name)
	return found.Container != nil && found.Kind == Init
}

// IsSidecar reports whether an init container runs along with the regular ones instead of terminating before them. It must
// not be asked about regular containers, which may have the same restart policy. Source: KEP-753.
func IsSidecar(init *corev1.Container) bool {
	return init.RestartPolicy != nil && *init.RestartPolicy == corev1.ContainerRestartPolicyAlways
}
