// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodestatus

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/seed81659283/nodeagent/nodestatus/machine"
)

// capacityOf returns what of each resource a machine has, as CapacityFromMachineInfo in pkg/kubelet/cadvisor says it. What is not known
// of the machine is left out.
func capacityOf(m *machine.Info) corev1.ResourceList {
	list := corev1.ResourceList{}
	if m.CPUs > 0 {
		list[corev1.ResourceCPU] = *resource.NewMilliQuantity(int64(m.CPUs)*1000, resource.DecimalSI)
	}
	if m.Memory > 0 {
		list[corev1.ResourceMemory] = *resource.NewQuantity(m.Memory, resource.BinarySI)
	}
	for size, bytes := range m.HugePages {
		name := corev1.ResourceHugePagesPrefix + resource.NewQuantity(size, resource.BinarySI).String()
		list[corev1.ResourceName(name)] = *resource.NewQuantity(bytes, resource.BinarySI)
	}
	if m.RootFS > 0 {
		list[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(m.RootFS, resource.DecimalSI)
	}
	return list
}

// pods returns how many pods the node takes, with so many CPUs.
func (c *Config) pods(cpus int) int64 {
	if c.PodsPerCore <= 0 {
		return int64(c.maxPods())
	}
	return min(int64(cpus)*int64(c.PodsPerCore), int64(c.maxPods()))
}

// setCapacity sets capacity. Resources of others, which the cluster has put there, stay.
func (b *builder) setCapacity() {
	list, m := b.node.Status.Capacity, &b.in.Machine
	has := capacityOf(m)
	if b.in.Config.NoLocalStorageCapacity {
		delete(has, corev1.ResourceEphemeralStorage)
	}
	maps.Copy(list, has)
	if m.CPUs > 0 || b.in.Config.PodsPerCore <= 0 {
		list[corev1.ResourcePods] = *resource.NewQuantity(b.in.Config.pods(m.CPUs), resource.DecimalSI)
	}
	for name, q := range b.in.Devices.Capacity {
		list[name] = q.DeepCopy()
	}
	for _, name := range b.in.Devices.Removed {
		list[name] = *resource.NewQuantity(0, resource.DecimalSI) // and not left out: a plugin had it, not the cluster
	}
}

// setAllocatable sets allocatable: capacity without what is reserved, and of devices those that are healthy.
func (b *builder) setAllocatable() {
	s := &b.node.Status
	if s.Allocatable == nil {
		s.Allocatable = corev1.ResourceList{}
	}
	for name := range s.Allocatable {
		if _, found := s.Capacity[name]; !found && isExtended(name) {
			delete(s.Allocatable, name)
		}
	}
	maps.Copy(s.Allocatable, b.in.Config.Reserved.Allocatable(s.Capacity))
	for name, q := range b.in.Devices.Allocatable {
		s.Allocatable[name] = q.DeepCopy()
	}
}

// isExtended reports whether a resource is one that Kubernetes has no meaning for, as IsExtendedResourceName in
// pkg/apis/core/v1/helper.
func isExtended(name corev1.ResourceName) bool {
	s := string(name)
	if !strings.Contains(s, "/") || strings.Contains(s, corev1.ResourceDefaultNamespacePrefix) ||
		strings.HasPrefix(s, corev1.DefaultResourceRequestsPrefix) {
		return false
	}
	return len(validation.IsQualifiedName(corev1.DefaultResourceRequestsPrefix+s)) == 0
}

func isHugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}
