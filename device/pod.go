// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package device

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Pod is the part of a pod that an [Allocator] needs.
type Pod struct {
	UID, Namespace, Name string
	PodLevel             bool        // the pod has pod-level resources; see Topology.PodLevel
	Containers           []Container // in the order in which they start: init containers and sidecars first
}

// Container is a container of a [Pod]. An ephemeral container has no devices and is left out.
type Container struct {
	Name   string
	Kind   ContainerKind
	Limits map[string]int // number of devices of each resource; a resource with zero devices is ignored
}

// ContainerKind determines whether later containers of the pod may use the devices of a container.
type ContainerKind int

// The kinds of containers.
const (
	Regular ContainerKind = iota // keeps its devices until the pod is over
	Init                         // ends before later containers start, which may reuse its devices
	Sidecar                      // a restartable init container; keeps its devices until the pod is over
)

// need is the number of devices of one resource that one container needs.
type need struct {
	container int // index in Pod.Containers
	resource  string
	count     int

	unregistered bool // no plugin is registered for the resource
}

// needs returns one need for each container and resource with a limit, in order of containers and resource names.
func (p *Pod) needs() (list []need) {
	for i := range p.Containers {
		for _, name := range slices.Sorted(maps.Keys(p.Containers[i].Limits)) {
			if count := p.Containers[i].Limits[name]; count > 0 {
				list = append(list, need{container: i, resource: name, count: count})
			}
		}
	}
	return list
}

// totalDevices returns the number of devices of a resource that the pod holds at most at one time. An init container runs with the sidecars before
// it, all sidecars with the regular containers. Source: PodLimits in k8s.io/component-helpers/resource.
func (p *Pod) totalDevices(resource string) int {
	kept, most := 0, 0
	for i := range p.Containers {
		count := p.Containers[i].Limits[resource]
		if p.Containers[i].Kind != Init {
			kept += count
			most = max(most, kept)
			continue
		}
		most = max(most, kept+count)
	}
	return most
}

// validate returns an error if the UID is empty, a container name is empty or not unique, or a limit is negative.
func (p *Pod) validate() error {
	if p.UID == "" {
		return errors.New("reserve devices: Pod.UID is empty")
	}
	names := map[string]bool{}
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.Name == "" || names[c.Name] {
			return fmt.Errorf("reserve devices: pod %s/%s has two containers of the name %q, or one without name", p.Namespace, p.Name, c.Name)
		}
		names[c.Name] = true
		for resource, count := range c.Limits {
			if count < 0 {
				return fmt.Errorf("reserve devices: pod %s/%s, container %s: limit %d of %s is negative", p.Namespace, p.Name, c.Name, count, resource)
			}
		}
	}
	return nil
}
