// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package resize

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/internal/containers"
)

// Sizes are the resources of a pod: its pod-level resources and those of its containers. It is computed once per version of a pod
// and must not be modified. A nil *Sizes means unknown.
type Sizes struct {
	Pod        *cgroups.ContainerSize // nil: the pod has no pod-level resources
	Containers []ContainerSize        // init and regular containers, in the order of containers.NotEphemeral
}

// ContainerSize has the CPU and memory requests and limits of one container.
type ContainerSize struct {
	Name string
	Size cgroups.ContainerSize
}

// SizesOf returns the sizes of pod and its containers, as requested in its spec; see [SizeOf].
func SizesOf(pod *corev1.Pod) *Sizes {
	s := &Sizes{Containers: make([]ContainerSize, 0, len(pod.Spec.InitContainers)+len(pod.Spec.Containers))}
	if pod.Spec.Resources != nil {
		s.Pod = new(SizeOfPod(pod))
	}
	for c := range containers.NotEphemeral(&pod.Spec) {
		s.Containers = append(s.Containers, ContainerSize{Name: c.Name, Size: SizeOf(&pod.Spec, c)})
	}
	return s
}

// PodLevel returns the pod-level resources, or zero if the pod has none.
func (s *Sizes) PodLevel() cgroups.ContainerSize {
	if s.Pod == nil {
		return cgroups.ContainerSize{}
	}
	return *s.Pod
}

// SizeOf returns the size of the container with this name. ok is false if s does not contain the container.
func (s *Sizes) SizeOf(container string) (size cgroups.ContainerSize, ok bool) {
	if s == nil {
		return size, false
	}
	for i := range s.Containers {
		if s.Containers[i].Name == container {
			return s.Containers[i].Size, true
		}
	}
	return size, false
}

// podLevelOnly returns a copy of s without the containers.
func (s *Sizes) podLevelOnly() *Sizes {
	if s == nil || len(s.Containers) == 0 {
		return s
	}
	return &Sizes{Pod: s.Pod}
}

// Equal reports whether s and other have equal pod-level resources and equal containers. Two nil pointers are equal.
func (s *Sizes) Equal(other *Sizes) bool {
	return s.EqualExcept(other, func(string) bool { return false })
}

// EqualExcept reports whether s and other are equal. It ignores the containers for which skip returns true.
func (s *Sizes) EqualExcept(other *Sizes, skip func(container string) bool) bool {
	if s == nil || other == nil || s == other {
		return s == other
	}
	if (s.Pod == nil) != (other.Pod == nil) || s.PodLevel() != other.PodLevel() {
		return false
	}
	rest := other.Containers
	next := func() (c ContainerSize, ok bool) {
		for len(rest) > 0 && !ok {
			c, rest = rest[0], rest[1:]
			ok = !skip(c.Name)
		}
		return c, ok
	}
	for _, c := range s.Containers {
		if skip(c.Name) {
			continue
		}
		if other, ok := next(); !ok || other != c {
			return false
		}
	}
	_, more := next()
	return !more
}

// String formats s for the persistent record of a pod, for example "cpu=0/2000 memory=0/0;main cpu=250/500 memory=0/0". It
// returns "" if s is nil.
func (s *Sizes) String() string {
	if s == nil {
		return ""
	}
	var text strings.Builder
	if s.Pod != nil {
		text.WriteString(FormatSize(*s.Pod))
	}
	for _, c := range s.Containers {
		text.WriteString(";" + c.Name + " " + FormatSize(c.Size))
	}
	return text.String()
}

// ParseSizes parses text in the format of [Sizes.String]. It skips invalid entries.
func ParseSizes(text string) *Sizes {
	if text == "" {
		return nil
	}
	whole, list, _ := strings.Cut(text, ";")
	s := &Sizes{}
	if size, ok := ParseSize(whole); ok {
		s.Pod = &size
	}
	for entry := range strings.SplitSeq(list, ";") {
		name, text, _ := strings.Cut(entry, " ")
		if size, ok := ParseSize(text); ok {
			s.Containers = append(s.Containers, ContainerSize{Name: name, Size: size})
		}
	}
	s.Containers = slices.Clip(s.Containers)
	return s
}
