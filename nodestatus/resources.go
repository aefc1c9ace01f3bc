// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodestatus

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/internal/podfield"
	"github.com/seed81659283/nodeagent/nodestatus/machine"
)

// machineCapacity returns the resources of a machine. It omits resources whose amount is unknown. Source:
// CapacityFromMachineInfo in pkg/kubelet/cadvisor.
func machineCapacity(info *machine.Info) corev1.ResourceList {
	list := corev1.ResourceList{}
	if info.CPUs > 0 {
		list[corev1.ResourceCPU] = *resource.NewMilliQuantity(int64(info.CPUs)*1000, resource.DecimalSI)
	}
	if info.Memory > 0 {
		list[corev1.ResourceMemory] = *resource.NewQuantity(info.Memory, resource.BinarySI)
	}
	for size, bytes := range info.HugePages {
		name := corev1.ResourceHugePagesPrefix + resource.NewQuantity(size, resource.BinarySI).String()
		list[corev1.ResourceName(name)] = *resource.NewQuantity(bytes, resource.BinarySI)
	}
	if info.RootFS > 0 {
		list[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(info.RootFS, resource.DecimalSI)
	}
	return list
}

// podCapacity returns how many pods a node with this number of CPUs may run.
func (c *Config) podCapacity(cpus int) int64 {
	if c.PodsPerCore <= 0 {
		return int64(c.maxPods())
	}
	return min(int64(cpus)*int64(c.PodsPerCore), int64(c.maxPods()))
}

// setCapacity sets status.capacity to the resources of the machine and of device plugins. It keeps extended resources that
// other clients have set.
func (b *builder) setCapacity() {
	list, m := b.node.Status.Capacity, &b.in.Machine
	has := machineCapacity(m)
	if b.in.Config.NoLocalStorageCapacity {
		delete(has, corev1.ResourceEphemeralStorage)
	}
	maps.Copy(list, has)
	if m.CPUs > 0 || b.in.Config.PodsPerCore <= 0 {
		list[corev1.ResourcePods] = *resource.NewQuantity(b.in.Config.podCapacity(m.CPUs), resource.DecimalSI)
	}
	for name, q := range b.in.Devices.Capacity {
		list[name] = q.DeepCopy()
	}
	for _, name := range b.in.Devices.Removed {
		list[name] = *resource.NewQuantity(0, resource.DecimalSI) // a zero marks a resource of a plugin; a missing one may be set by other clients
	}
}

// setAllocatable sets status.allocatable to the capacity minus the reserved resources. For a resource of a device plugin, it
// is the number of healthy devices.
func (b *builder) setAllocatable() {
	s := &b.node.Status
	if s.Allocatable == nil {
		s.Allocatable = corev1.ResourceList{}
	}
	for name := range s.Allocatable {
		if _, found := s.Capacity[name]; !found && podfield.IsExtendedResource(name) {
			delete(s.Allocatable, name)
		}
	}
	maps.Copy(s.Allocatable, b.in.Config.Reserved.Allocatable(s.Capacity))
	for name, q := range b.in.Devices.Allocatable {
		s.Allocatable[name] = q.DeepCopy()
	}
}

func isHugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}
