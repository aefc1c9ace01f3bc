// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"maps"
	"slices"

	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubelet/pkg/apis/podresources/v1alpha1"

	"github.com/seed81659283/nodeagent/device"
)

// snapshot has the data of one request. Its methods build the response, and change only nodes. Source:
// pkg/kubelet/apis/podresources.
type snapshot struct {
	active      []device.Pod
	inactive    []device.Pod
	allocations Allocations
	unreserved  bool // list pods with an incomplete reservation
	cpus        CPUs
	memory      Memory
	claims      Claims

	nodes [64]*podresourcesv1.TopologyInfo // of single NUMA nodes, shared by the devices of a response
}

// listPods returns the response of List.
func (s *snapshot) listPods() *podresourcesv1.ListPodResourcesResponse {
	response := &podresourcesv1.ListPodResourcesResponse{PodResources: make([]*podresourcesv1.PodResources, 0, len(s.active))}
	for i := range s.active {
		if s.isListed(&s.active[i]) {
			response.PodResources = append(response.PodResources, s.pod(&s.active[i]))
		}
	}
	return response
}

// findPod returns the last listed pod with this name, or nil.
func (s *snapshot) findPod(namespace, name string) *podresourcesv1.PodResources {
	for i := range slices.Backward(s.active) {
		if p := &s.active[i]; p.Name == name && p.Namespace == namespace && s.isListed(p) {
			return s.pod(p)
		}
	}
	return nil
}

// listAlpha returns the response of List of v1alpha1. Active pods have their devices, inactive pods have none. Sidecars are omitted.
func (s *snapshot) listAlpha() *v1alpha1.ListPodResourcesResponse {
	response := &v1alpha1.ListPodResourcesResponse{PodResources: make([]*v1alpha1.PodResources, 0, len(s.active)+len(s.inactive))}
	for i := range s.active {
		if p := &s.active[i]; s.isListed(p) {
			response.PodResources = append(response.PodResources, s.podAlpha(p, s.allocations[p.UID]))
		}
	}
	for i := range s.inactive {
		response.PodResources = append(response.PodResources, s.podAlpha(&s.inactive[i], nil))
	}
	return response
}

// isListed reports whether List contains the active pod p: its devices are reserved, it requests none, or unreserved is true.
func (s *snapshot) isListed(p *device.Pod) bool {
	if _, reserved := s.allocations[p.UID]; reserved || s.unreserved {
		return true
	}
	for i := range p.Containers {
		for _, count := range p.Containers[i].Limits {
			if count > 0 {
				return false
			}
		}
	}
	return true
}

// pod returns the sidecars and then the regular containers of a pod, with their resources.
func (s *snapshot) pod(p *device.Pod) *podresourcesv1.PodResources {
	answer := &podresourcesv1.PodResources{
		Name: p.Name, Namespace: p.Namespace, Containers: make([]*podresourcesv1.ContainerResources, 0, len(p.Containers)),
	}
	if s.cpus != nil {
		answer.CpuIds = s.cpus.PodCPUs(p.UID)
	}
	if s.memory != nil {
		answer.Memory = convertMemory(s.memory.PodMemory(p.UID))
	}
	devices := s.allocations[p.UID]
	for _, kind := range []device.ContainerKind{device.Sidecar, device.Regular} {
		for i := range p.Containers {
			if c := &p.Containers[i]; c.Kind == kind {
				answer.Containers = append(answer.Containers, s.container(p.UID, c.Name, devices[c.Name]))
			}
		}
	}
	return answer
}

// container returns the resources of a container with these devices.
func (s *snapshot) container(uid, name string, devices map[string][]device.Device) *podresourcesv1.ContainerResources {
	answer := &podresourcesv1.ContainerResources{Name: name, Devices: s.devices(devices)}
	if s.cpus != nil {
		answer.CpuIds = s.cpus.CPUs(uid, name)
	}
	if s.memory != nil {
		answer.Memory = convertMemory(s.memory.Memory(uid, name))
	}
	if s.claims != nil {
		answer.DynamicResources = convertClaims(s.claims.Claims(uid, name))
	}
	return answer
}

// devices returns an entry for each device and each of its NUMA nodes, in the order of resource names. A device without NUMA nodes has one entry
// without topology. Source: pkg/kubelet/cm/container_manager.go.
func (s *snapshot) devices(byResource map[string][]device.Device) []*podresourcesv1.ContainerDevices {
	count := 0
	for _, devices := range byResource {
		for i := range devices {
			count += max(1, devices[i].Nodes.Count())
		}
	}
	if count == 0 {
		return nil
	}
	// One allocation for all entries: a list of a node with many devices is called often.
	entries := make([]podresourcesv1.ContainerDevices, count)
	answer := make([]*podresourcesv1.ContainerDevices, 0, count)
	ids := make([]string, 0, count)
	add := func(resource, id string, topology *podresourcesv1.TopologyInfo) {
		ids = append(ids, id)
		entry := &entries[len(answer)]
		entry.ResourceName, entry.Topology = resource, topology
		entry.DeviceIds = ids[len(ids)-1 : len(ids) : len(ids)]
		answer = append(answer, entry)
	}
	for _, resource := range slices.Sorted(maps.Keys(byResource)) {
		for _, d := range byResource[resource] {
			for node := range d.Nodes.Nodes() {
				add(resource, d.ID, s.topology(node))
			}
			if d.Nodes == 0 {
				add(resource, d.ID, nil)
			}
		}
	}
	return answer
}

// topology returns the topology of one NUMA node. All devices of the response share it.
func (s *snapshot) topology(node int) *podresourcesv1.TopologyInfo {
	if s.nodes[node] == nil {
		s.nodes[node] = &podresourcesv1.TopologyInfo{Nodes: []*podresourcesv1.NUMANode{{ID: int64(node)}}}
	}
	return s.nodes[node]
}

// podAlpha returns the regular containers of a pod with these devices, by container.
func (s *snapshot) podAlpha(p *device.Pod, devices map[string]map[string][]device.Device) *v1alpha1.PodResources {
	answer := &v1alpha1.PodResources{Name: p.Name, Namespace: p.Namespace}
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.Kind != device.Regular {
			continue
		}
		container := &v1alpha1.ContainerResources{Name: c.Name}
		for _, d := range s.devices(devices[c.Name]) {
			container.Devices = append(container.Devices, &v1alpha1.ContainerDevices{ResourceName: d.ResourceName, DeviceIds: d.DeviceIds})
		}
		answer.Containers = append(answer.Containers, container)
	}
	return answer
}

// convertMemory returns an entry for each block, with all its NUMA nodes. Source: pkg/kubelet/cm/container_manager_linux.go.
func convertMemory(blocks []device.MemoryBlock) (answer []*podresourcesv1.ContainerMemory) {
	for _, b := range blocks {
		topology := &podresourcesv1.TopologyInfo{}
		for node := range b.Nodes.Nodes() {
			topology.Nodes = append(topology.Nodes, &podresourcesv1.NUMANode{ID: int64(node)})
		}
		answer = append(answer, &podresourcesv1.ContainerMemory{MemoryType: b.Type, Size: b.Size, Topology: topology})
	}
	return answer
}

// convertClaims returns an entry for each claim, with its devices.
func convertClaims(claims []Claim) (answer []*podresourcesv1.DynamicResource) {
	for _, c := range claims {
		resource := &podresourcesv1.DynamicResource{ClaimName: c.Name, ClaimNamespace: c.Namespace}
		for _, d := range c.Devices {
			converted := &podresourcesv1.ClaimResource{DriverName: d.Driver, PoolName: d.Pool, DeviceName: d.Device}
			if d.ShareID != "" {
				converted.ShareId = &d.ShareID
			}
			for _, name := range d.CDIDevices {
				converted.CdiDevices = append(converted.CdiDevices, &podresourcesv1.CDIDevice{Name: name})
			}
			resource.ClaimResources = append(resource.ClaimResources, converted)
		}
		answer = append(answer, resource)
	}
	return answer
}
