// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cpus

import (
	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/device"
)

// Usage counts the CPUs of a node, for metrics. Under the policy none it is zero, also if running containers keep exclusive CPUs.
type Usage struct {
	Free      int         // CPUs of the shared pool that a container can get exclusively: without the reserved CPUs
	Exclusive int         // exclusive CPUs of containers and of whole pods
	Nodes     map[int]int // number of exclusive CPUs on each NUMA node with CPUs, by ID of the node
}

// Usage counts the CPUs of a state. Source: initializeMetrics in pkg/kubelet/cm/cpumanager/policy_static.go.
func (p *Policy) Usage(s State) Usage {
	if !p.static {
		return Usage{}
	}
	exclusive := s.exclusive()
	u := Usage{Free: p.free(&s).Len(), Exclusive: exclusive.Len(), Nodes: map[int]int{}}
	for n, id := range p.layout.nodes.ids {
		u.Nodes[id] = exclusive.CountCommon(p.layout.nodes.sets[n])
	}
	return u
}

// Pinning is the outcome of a reservation for one container, for metrics. [Policy.Pinning] returns the outcome of ReserveContainer, [Policy.PodPinnings]
// those of ReservePod.
type Pinning struct {
	PodUID, Container string // Container is empty if the pod was refused as a whole
	Share             device.Share
	Taken             topology.CPUSet // empty if the container had its CPUs before, or has none
	WholeCores        bool            // the option full-pcpus-only is set; PodPinnings leaves it false
	OneCache          bool            // the CPUs in Taken share one last-level cache; see PodPinnings
	Err               error           // nil: the reservation returned no error; a running container may lack CPUs
}

// Pinning returns the outcome for container i of a pod, whose reservation has changed the state from before to after, or has failed with err. It returns
// false for a container that needs no CPUs for itself, also if the container shares those of its pod.
func (p *Policy) Pinning(before, after State, pod *Pod, i int, err error) (Pinning, bool) {
	if !p.static || p.countCPUs(pod, i) == 0 {
		return Pinning{}, false
	}
	name := pod.Containers[i].Name
	o := Pinning{PodUID: pod.UID, Container: name, WholeCores: p.take.WholeCores, Err: err}
	if kept := before.Assigned[pod.UID][name]; err == nil && kept.IsEmpty() {
		o.Taken = after.Assigned[pod.UID][name]
		o.OneCache = p.shareCache(o.Taken)
	}
	return o, true
}

// PodPinnings returns the outcomes for all containers of a pod of [Policy.ReservePod], also for those that share CPUs. If err is not nil, it returns one
// outcome, for the pod. OneCache of the first outcome is about all CPUs of the pod, and false in the other outcomes. PodPinnings returns nil if the pod
// needs no exclusive CPUs. Source: allocatePodForAdd in pkg/kubelet/cm/cpumanager/policy_static.go.
func (p *Policy) PodPinnings(before, after State, pod *Pod, err error) (list []Pinning) {
	if !p.static || p.countPeak(pod) == 0 {
		return nil
	}
	if err != nil {
		return []Pinning{{PodUID: pod.UID, Share: device.OfPod, Err: err}}
	}
	for i := range pod.Containers {
		o := Pinning{PodUID: pod.UID, Container: pod.Containers[i].Name, Share: device.OfPod}
		if after.SharesPod(pod, i) {
			o.Share = device.SharedOfPod
		}
		if len(before.Assigned[pod.UID]) == 0 {
			o.Taken = after.Assigned[pod.UID][o.Container]
			o.OneCache = i == 0 && p.shareCache(after.Assigned[pod.UID][WholePod])
		}
		list = append(list, o)
	}
	return list
}

// shareCache reports whether all CPUs of a set that is not empty share a last-level cache.
func (p *Policy) shareCache(set topology.CPUSet) bool {
	if set.IsEmpty() {
		return false
	}
	caches := &p.layout.caches
	return caches.sets[caches.of[set.Lowest()]].CountCommon(set) == set.Len()
}
