// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podtree

import (
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// ResourcePIDs is the name under which process IDs are reserved. It is no resource of a Node object: its capacity is
// what [MaxPIDs] returns.
const ResourcePIDs corev1.ResourceName = "pid"

// Reserved is what of a node is not for pods.
type Reserved struct {
	System corev1.ResourceList // for the daemons of the operating system
	Kube   corev1.ResourceList // for the agent and the container runtime

	// What hard eviction keeps free counts where pods are scheduled, not in the limit of kubepods: pods may use it
	// until they are evicted.
	MemoryAvailable EvictionReserve // the signal memory.available
	NodeFSAvailable EvictionReserve // the signal nodefs.available, of ephemeral-storage
}

// EvictionReserve is the amount of a resource that hard eviction keeps free. The zero value is none.
type EvictionReserve struct {
	Quantity resource.Quantity // used if it is not zero
	Fraction float32           // of the capacity, such as 0.05 for 5%
}

// of returns the amount for a capacity. Fractions are 32-bit floats, as in the kubelet.
func (e EvictionReserve) of(capacity resource.Quantity) resource.Quantity {
	if !e.Quantity.IsZero() {
		return e.Quantity
	}
	amount := float64(capacity.Value()) * float64(e.Fraction)
	if amount >= math.MaxInt64 {
		return *resource.NewQuantity(math.MaxInt64, resource.BinarySI)
	}
	return *resource.NewQuantity(int64(amount), resource.BinarySI)
}

// Reservation returns what of each resource of capacity is kept from scheduling: what the system and the agent have,
// and what hard eviction keeps free. Resources of which nothing is kept are left out.
func (r Reserved) Reservation(capacity corev1.ResourceList) corev1.ResourceList {
	free := corev1.ResourceList{
		corev1.ResourceMemory:           r.MemoryAvailable.of(capacity[corev1.ResourceMemory]),
		corev1.ResourceEphemeralStorage: r.NodeFSAvailable.of(capacity[corev1.ResourceEphemeralStorage]),
	}
	kept := corev1.ResourceList{}
	for name := range capacity {
		q := *resource.NewQuantity(0, resource.DecimalSI)
		q.Add(r.System[name])
		q.Add(r.Kube[name])
		q.Add(free[name])
		if !q.IsZero() {
			kept[name] = q
		}
	}
	return kept
}

// Allocatable returns what a Node object reports as allocatable: capacity less [Reserved.Reservation], and memory also
// less what is preallocated as huge pages, none of it below zero. What device plugins report replaces their resources
// afterwards.
func (r Reserved) Allocatable(capacity corev1.ResourceList) corev1.ResourceList {
	left := less(capacity, r.Reservation(capacity))
	for name, size := range capacity {
		if strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
			memory := left[corev1.ResourceMemory]
			left[corev1.ResourceMemory] = subtract(memory, size)
		}
	}
	return left
}

// ForPods returns what all pods together may use, which is the limit of kubepods: capacity less what the system and
// the agent have. It counts neither what hard eviction keeps free nor huge pages.
func (r Reserved) ForPods(capacity corev1.ResourceList) corev1.ResourceList {
	return less(capacity, r.System, r.Kube)
}

// less returns a list without what the others have of it, floored at zero.
func less(list corev1.ResourceList, others ...corev1.ResourceList) corev1.ResourceList {
	left := make(corev1.ResourceList, len(list))
	for name, q := range list {
		for _, other := range others {
			q = q.DeepCopy()
			q.Sub(other[name])
		}
		left[name] = subtract(q, resource.Quantity{})
	}
	return left
}

// subtract returns a-b, or zero where that is negative. It changes neither.
func subtract(a, b resource.Quantity) resource.Quantity {
	a = a.DeepCopy()
	a.Sub(b)
	if a.Sign() < 0 {
		a.Set(0)
	}
	return a
}
