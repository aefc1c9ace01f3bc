// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"iter"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// kind is which of a pod's three lists a container stands in.
type kind int

const (
	initContainer kind = iota
	regularContainer
	ephemeralContainer
)

// listed is a container of a pod with where it stands.
type listed struct {
	*corev1.Container
	kind kind
	path *field.Path
}

// sidecar says whether a container is an init container that keeps running beside those that follow it (KEP-753).
func (c listed) sidecar() bool {
	return c.kind == initContainer && c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// containers yields all containers of a pod: init containers, regular ones, ephemeral ones.
func containers(spec *corev1.PodSpec) iter.Seq[listed] {
	path := field.NewPath("spec")
	return func(yield func(listed) bool) {
		for i := range spec.InitContainers {
			if !yield(listed{&spec.InitContainers[i], initContainer, path.Child("initContainers").Index(i)}) {
				return
			}
		}
		for i := range spec.Containers {
			if !yield(listed{&spec.Containers[i], regularContainer, path.Child("containers").Index(i)}) {
				return
			}
		}
		for i := range spec.EphemeralContainers {
			// The two types have the same fields, so that one can stand for the other.
			c := (*corev1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon)
			if !yield(listed{c, ephemeralContainer, path.Child("ephemeralContainers").Index(i)}) {
				return
			}
		}
	}
}

// find returns the container of a name, whose Container is nil if the pod has none.
func find(spec *corev1.PodSpec, name string) listed {
	for c := range containers(spec) {
		if c.Name == name {
			return c
		}
	}
	return listed{path: field.NewPath("spec", "containers").Key(name)}
}
