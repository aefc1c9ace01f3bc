// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"iter"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	podcontainers "github.com/seed81659283/nodeagent/internal/containers"
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
	return c.kind == initContainer && podcontainers.IsSidecar(c.Container)
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
	c := func(list string, i int, k kind, c *corev1.Container) listed {
		return listed{c, k, field.NewPath("spec", list).Index(i)}
	}
	for i := range spec.InitContainers {
		if spec.InitContainers[i].Name == name {
			return c("initContainers", i, initContainer, &spec.InitContainers[i])
		}
	}
	for i := range spec.Containers {
		if spec.Containers[i].Name == name {
			return c("containers", i, regularContainer, &spec.Containers[i])
		}
	}
	for i := range spec.EphemeralContainers {
		if e := &spec.EphemeralContainers[i].EphemeralContainerCommon; e.Name == name {
			return c("ephemeralContainers", i, ephemeralContainer, (*corev1.Container)(e))
		}
	}
	return listed{path: field.NewPath("spec", "containers").Key(name)}
}

// byName is what the parts of a pod refer to, for checks that look up many. The first of a name counts.
type byName struct {
	containers map[string]listed
	volumes    map[string]*corev1.Volume
}

func index(spec *corev1.PodSpec) byName {
	x := byName{make(map[string]listed), make(map[string]*corev1.Volume)}
	for c := range containers(spec) {
		if _, ok := x.containers[c.Name]; !ok {
			x.containers[c.Name] = c
		}
	}
	for i := range spec.Volumes {
		if v := &spec.Volumes[i]; x.volumes[v.Name] == nil {
			x.volumes[v.Name] = v
		}
	}
	return x
}
