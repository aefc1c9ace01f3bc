// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podfield

import (
	"iter"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/internal/containers"
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
	Kind Kind
	Path *field.Path
}

// Sidecar reports whether a container is an init container that keeps running beside those that follow it (KEP-753).
func (c Container) Sidecar() bool {
	return c.Kind == Init && containers.IsSidecar(c.Container)
}

// Privileged reports whether a container is privileged.
func (c Container) Privileged() bool {
	return c.SecurityContext != nil && c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged
}

// Containers yields all containers of a pod: init containers, regular ones, ephemeral ones.
func Containers(spec *corev1.PodSpec) iter.Seq[Container] {
	path := field.NewPath("spec")
	return func(yield func(Container) bool) {
		for i := range spec.InitContainers {
			if !yield(Container{&spec.InitContainers[i], Init, path.Child("initContainers").Index(i)}) {
				return
			}
		}
		for i := range spec.Containers {
			if !yield(Container{&spec.Containers[i], Regular, path.Child("containers").Index(i)}) {
				return
			}
		}
		for i := range spec.EphemeralContainers {
			// The two types have the same fields, so that one can stand for the other.
			c := (*corev1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon)
			if !yield(Container{c, Ephemeral, path.Child("ephemeralContainers").Index(i)}) {
				return
			}
		}
	}
}

// Find returns the container of a name, whose Container is nil if the pod has none.
func Find(spec *corev1.PodSpec, name string) Container {
	c := func(list string, i int, k Kind, c *corev1.Container) Container {
		return Container{c, k, field.NewPath("spec", list).Index(i)}
	}
	for i := range spec.InitContainers {
		if spec.InitContainers[i].Name == name {
			return c("initContainers", i, Init, &spec.InitContainers[i])
		}
	}
	for i := range spec.Containers {
		if spec.Containers[i].Name == name {
			return c("containers", i, Regular, &spec.Containers[i])
		}
	}
	for i := range spec.EphemeralContainers {
		if e := &spec.EphemeralContainers[i].EphemeralContainerCommon; e.Name == name {
			return c("ephemeralContainers", i, Ephemeral, (*corev1.Container)(e))
		}
	}
	return Container{Path: field.NewPath("spec", "containers").Key(name)}
}
