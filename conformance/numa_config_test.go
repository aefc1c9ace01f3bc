// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/klog/v2"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager"

	"github.com/seed81659283/nodeagent/cgroups/numa"
	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/conformance"
)

func TestNUMAConfig(t *testing.T) { run(t, numaConfig) }

// numaConfigInput is a configuration on a machine.
type numaConfigInput struct {
	Nodes  int
	Config numa.Config
}

// sumOf returns the sum of two amounts, as the kubelet adds them.
func sumOf(a, b resource.Quantity) resource.Quantity {
	sum := a.DeepCopy()
	sum.Add(b)
	return sum
}

// numaConfig compares the errors with which the memory manager is not created. At most one type of memory is wrong: of several, the kubelet names any.
var numaConfig = conformance.Comparison[numaConfigInput, string]{
	Make: func(c *conformance.Choices) numaConfigInput {
		in := numaConfigInput{Nodes: 1 + c.Int(4), Config: numa.Config{Policy: numa.PolicyStatic}}
		if c.OneIn(8) {
			in.Config.Policy = conformance.Pick(c, numa.PolicyNone, "static", "none", "BestEffort", "")
		}
		quantity := func() resource.Quantity {
			return resource.MustParse(conformance.Pick(c, "1Gi", "100Mi", "1G", "1073741824", "1.5Gi", "100500m", "0", "2e9"))
		}
		total, pages := resource.Quantity{}, false
		for range c.Int(4) {
			node, q := c.Int(in.Nodes), quantity()
			if c.OneIn(16) {
				node = in.Nodes
			}
			limits := map[string]resource.Quantity{numa.Memory: q}
			if slices.ContainsFunc(in.Config.ReservedMemory, func(r numa.Reservation) bool { return r.Node == node }) || q.IsZero() {
				continue // an error of the configuration, which is compared elsewhere
			}
			if c.OneIn(16) {
				limits, pages = map[string]resource.Quantity{"hugepages-2Mi": resource.MustParse("2Mi")}, true
			} else {
				total = sumOf(total, q)
			}
			in.Config.ReservedMemory = append(in.Config.ReservedMemory, numa.Reservation{Node: node, Limits: limits})
		}
		sums := c.Int(4)
		if pages { // no other type is wrong
			sums = 0
		}
		switch sums {
		case 0:
			in.Config.SystemReserved = map[string]resource.Quantity{numa.Memory: total, "cpu": resource.MustParse("1")}
		case 1:
			in.Config.HardEviction = total
		case 2:
			in.Config.KubeReserved, in.Config.HardEviction = map[string]resource.Quantity{numa.Memory: quantity()}, quantity()
		case 3:
			half := resource.NewQuantity(total.Value()/2, resource.BinarySI)
			rest := total.DeepCopy()
			rest.Sub(*half)
			in.Config.SystemReserved, in.Config.KubeReserved = map[string]resource.Quantity{numa.Memory: *half}, map[string]resource.Quantity{numa.Memory: rest}
		}
		return in
	},
	Kubelet: func(in numaConfigInput) string {
		// The node reserves what GetNodeAllocatableReservation of the container manager adds.
		allocatable := resource.NewQuantity(0, resource.DecimalSI)
		allocatable.Add(in.Config.SystemReserved[numa.Memory])
		allocatable.Add(in.Config.KubeReserved[numa.Memory])
		allocatable.Add(in.Config.HardEviction)
		reservation := corev1.ResourceList{}
		if !allocatable.IsZero() {
			reservation[corev1.ResourceMemory] = *allocatable
		}
		var reserved []kubeletconfig.MemoryReservation
		for _, r := range in.Config.ReservedMemory {
			limits := corev1.ResourceList{}
			for name, q := range r.Limits {
				limits[corev1.ResourceName(name)] = q
			}
			reserved = append(reserved, kubeletconfig.MemoryReservation{NumaNode: int32(r.Node), Limits: limits})
		}
		machine := &topology.Machine{}
		for id := range in.Nodes {
			machine.Nodes = append(machine.Nodes, topology.Node{ID: id, Memory: 16 << 30})
		}
		policy := in.Config.Policy
		if policy == "" {
			policy = numa.PolicyNone // the default of the configuration
		}
		_, err := memorymanager.NewManager(klog.Logger{}, policy, kubeletMachine(machine), reservation, reserved, "", nil)
		return fmt.Sprint(err)
	},
	Ours: func(in numaConfigInput) string {
		machine := &topology.Machine{}
		for id := range in.Nodes {
			machine.Nodes = append(machine.Nodes, topology.Node{ID: id, Memory: 16 << 30})
		}
		_, err := numa.NewPolicy(machine, in.Config)
		return fmt.Sprint(err)
	},
}
