// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podfield

import (
	"iter"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/internal/containers"
)

// Container is a container of a pod with the path of its field, for errors.
type Container struct {
	containers.Container
	Path *field.Path
}

// IsPrivileged reports whether securityContext.privileged of the container is true.
func (c Container) IsPrivileged() bool {
	return c.SecurityContext != nil && c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged
}

// Containers yields all init, regular and ephemeral containers of spec, each with its field path.
func Containers(spec *corev1.PodSpec) iter.Seq[Container] {
	return func(yield func(Container) bool) {
		for c := range containers.All(spec) {
			if !yield(Container{c, containerPath(c)}) {
				return
			}
		}
	}
}

// PathOf returns the field path of the container called name, such as spec.initContainers[0]. If spec has no such container, the
// path is spec.containers[name].
func PathOf(spec *corev1.PodSpec, name string) *field.Path {
	c := containers.Find(spec, name)
	if c.Container == nil {
		return field.NewPath("spec", "containers").Key(name)
	}
	return containerPath(c)
}

// containerPath returns the field path of a container, such as spec.initContainers[0].
func containerPath(container containers.Container) *field.Path {
	list := "containers"
	switch container.Kind {
	case containers.Init:
		list = "initContainers"
	case containers.Ephemeral:
		list = "ephemeralContainers"
	}
	return field.NewPath("spec", list).Index(container.Index)
}
