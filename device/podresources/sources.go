// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"github.com/seed81659283/nodeagent/device"
)

// Pods lists the pods of the node.
type Pods interface {
	// Pods returns the active pods in the order of List. inactive has the pods that have terminated; only List of v1alpha1 reports them. If several
	// active pods have one name, Get reports the last.
	//
	// The server calls Pods for each request, from several goroutines, and does not modify the result. Pods must not block.
	Pods() (active, inactive []device.Pod)
}

// PodsFunc implements [Pods] with a function.
type PodsFunc func() (active, inactive []device.Pod)

// Pods calls f.
func (f PodsFunc) Pods() (active, inactive []device.Pod) { return f() }

// Allocations has the devices of the containers of a node: by UID of the pod, name of the container, and name of the resource.
// It has the UID of each pod whose reservation is complete, even if the pod has no devices.
type Allocations = map[string]map[string]map[string][]device.Device

// Devices has the devices of plugins. The server calls its methods for each request, from several goroutines, and does not
// modify the results. They must not block, and a result must not change after it was returned.
type Devices interface {
	// Allocations returns the devices of all pods at one moment. A pod with an incomplete reservation is not in the result.
	Allocations() Allocations
	// Allocatable returns the healthy devices of each resource, whether or not a container uses them.
	Allocatable() map[string][]device.Device
}

// CPUs has the exclusive CPUs of containers. Its methods are called from several goroutines, and must not block.
type CPUs interface {
	// CPUs returns the IDs of the exclusive CPUs of a container, in ascending order. It returns none for a container that
	// shares its CPUs.
	CPUs(podUID, container string) []int64
	// PodCPUs returns the IDs of the CPUs that a pod with pod-level resources has exclusively, with those of its containers.
	PodCPUs(podUID string) []int64
	// AllocatableCPUs returns the IDs of the CPUs that containers may have exclusively.
	AllocatableCPUs() []int64
}

// Memory has the memory that is reserved for containers on NUMA nodes. Its methods are called from several goroutines, and must not
// block.
type Memory interface {
	// Memory returns the memory of a container. It returns none for a container without reserved memory.
	Memory(podUID, container string) []device.MemoryBlock
	// PodMemory returns the memory that is reserved for a pod with pod-level resources, with that of its containers.
	PodMemory(podUID string) []device.MemoryBlock
	// AllocatableMemory returns the memory that can be reserved for containers.
	AllocatableMemory() []device.MemoryBlock
}

// Claims has the resource claims of containers, from dynamic resource allocation.
type Claims interface {
	// Claims returns the claims of a container. It is called from several goroutines, and must not block.
	Claims(podUID, container string) []Claim
}

// Claim is a resource claim that a container uses.
type Claim struct {
	Namespace, Name string
	Devices         []ClaimDevice
}

// ClaimDevice is a device that was allocated to a [Claim].
type ClaimDevice struct {
	Driver, Pool, Device string   // names of the driver, its pool, and the device
	ShareID              string   // share of a device that several claims use; empty: none
	CDIDevices           []string // fully qualified names of CDI devices, such as "vendor.com/class=name"
}
