// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podtree

import (
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// ResourcePIDs is the resource name for reserved process IDs. It is not in the capacity of a Node object; its capacity is
// [MaxPIDs].
const ResourcePIDs corev1.ResourceName = "pid"

// Reserved holds the resources of a node that are not for pods.
type Reserved struct {
	System corev1.ResourceList // systemReserved: for system daemons
	Kube   corev1.ResourceList // kubeReserved: for the agent and the container runtime

	// Memory and storage kept free by hard eviction. They reduce allocatable, but not the limit of kubepods: pods may use them
	// until they are evicted.
	MemoryAvailable EvictionReserve // for the signal memory.available
	NodeFSAvailable EvictionReserve // for the signal nodefs.available: ephemeral-storage
}

// EvictionReserve is the amount of a resource that hard eviction keeps free. The zero value is zero.
type EvictionReserve struct {
	Quantity resource.Quantity // used if nonzero
	Fraction float32           // fraction of the capacity, for example 0.05 for 5%
}

// computeAmount returns how much of the capacity the eviction threshold keeps free. A fraction has the precision of a
// float32, as in the kubelet.
func (e EvictionReserve) computeAmount(capacity resource.Quantity) resource.Quantity {
	if !e.Quantity.IsZero() {
		return e.Quantity
	}
	amount := float64(capacity.Value()) * float64(e.Fraction)
	if amount >= math.MaxInt64 {
		return *resource.NewQuantity(math.MaxInt64, resource.BinarySI)
	}
	return *resource.NewQuantity(int64(amount), resource.BinarySI)
}

// Reservation returns the part of the capacity that pods cannot request. This is System plus Kube plus the eviction reserve.
// Resources without a reservation are not in the result.
func (r Reserved) Reservation(capacity corev1.ResourceList) corev1.ResourceList {
	free := corev1.ResourceList{
		corev1.ResourceMemory:           r.MemoryAvailable.computeAmount(capacity[corev1.ResourceMemory]),
		corev1.ResourceEphemeralStorage: r.NodeFSAvailable.computeAmount(capacity[corev1.ResourceEphemeralStorage]),
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

// Allocatable returns status.allocatable of a Node. It is the capacity minus [Reserved.Reservation], and at least zero. Huge
// pages are also subtracted from memory. The caller adds the resources of device plugins afterwards.
func (r Reserved) Allocatable(capacity corev1.ResourceList) corev1.ResourceList {
	left := subtractLists(capacity, r.Reservation(capacity))
	for name, size := range capacity {
		if strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
			memory := left[corev1.ResourceMemory]
			left[corev1.ResourceMemory] = subtractToZero(memory, size)
		}
	}
	return left
}

// ForPods returns the limit of kubepods, the parent cgroup of all pods. It is the capacity minus System and Kube. Unlike
// [Reserved.Allocatable], it subtracts neither the eviction reserve nor huge pages.
func (r Reserved) ForPods(capacity corev1.ResourceList) corev1.ResourceList {
	return subtractLists(capacity, r.System, r.Kube)
}

// subtractLists returns list minus the amounts in all other lists. No amount is below zero.
func subtractLists(list corev1.ResourceList, others ...corev1.ResourceList) corev1.ResourceList {
	left := make(corev1.ResourceList, len(list))
	for name, q := range list {
		for _, other := range others {
			q = q.DeepCopy()
			q.Sub(other[name])
		}
		left[name] = subtractToZero(q, resource.Quantity{})
	}
	return left
}

// subtractToZero returns a-b, or zero if that is negative. It modifies neither a nor b.
func subtractToZero(a, b resource.Quantity) resource.Quantity {
	a = a.DeepCopy()
	a.Sub(b)
	if a.Sign() < 0 {
		a.Set(0)
	}
	return a
}
