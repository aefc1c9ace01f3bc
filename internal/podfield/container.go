// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podfield

import (
	"iter"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/internal/containers"
)

// Container is a container of a pod with the path of its field.
type Container struct {
	containers.Container
	Path *field.Path
}

// Privileged reports whether a container is privileged.
func (c Container) Privileged() bool {
	return c.SecurityContext != nil && c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged
}

// Containers yields all containers of a pod: init containers, regular ones, ephemeral ones.
func Containers(spec *corev1.PodSpec) iter.Seq[Container] {
	return func(yield func(Container) bool) {
		for c := range containers.All(spec) {
			if !yield(Container{c, pathOf(c)}) {
				return
			}
		}
	}
}

// PathOf returns the path of the container of a name, also if the pod has none.
func PathOf(spec *corev1.PodSpec, name string) *field.Path {
	c := containers.Find(spec, name)
	if c.Container == nil {
		return field.NewPath("spec", "containers").Key(name)
	}
	return pathOf(c)
}

func pathOf(c containers.Container) *field.Path {
	list := "containers"
	switch c.Kind {
	case containers.Init:
		list = "initContainers"
	case containers.Ephemeral:
		list = "ephemeralContainers"
	}
	return field.NewPath("spec", list).Index(c.Index)
}
