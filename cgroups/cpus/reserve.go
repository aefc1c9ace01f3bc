// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cpus

import (
	"fmt"

	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/device"
)

// ReasonSMTAlignmentError is the reason of a [device.Refusal] for a container whose CPUs are no whole cores, with the option full-pcpus-only.
const ReasonSMTAlignmentError = "SMTAlignmentError"

// ReserveContainer returns the state in which container i of a pod has its exclusive CPUs. Call it for the containers in their order: a container may
// reuse CPUs of the init containers before it. The state does not change if the container needs no exclusive CPUs, or already has CPUs, even of another
// number. affinity has the NUMA nodes of the merged hint, whose CPUs are taken first; zero: any.
//
// ReserveContainer returns a [*device.Refusal] if it cannot assign CPUs. Two kinds of containers then stay in the shared pool instead, without an error: those
// of a pod with Pod.Running, and those that have lost all their CPUs in [Policy.Restore], and have an empty set. With Kubelet.RefuseRunning, the first are
// refused, and for the second nothing is tried. Source: allocateForAdd in pkg/kubelet/cm/cpumanager/policy_static.go.
func (p *Policy) ReserveContainer(s State, pod *Pod, i int, affinity device.Mask) (State, error) {
	if !p.static || p.countCPUs(pod, i) == 0 {
		return s, nil
	}
	name := pod.Containers[i].Name
	set, isAssigned := s.Assigned[pod.UID][name]
	if isAssigned && (!set.IsEmpty() || p.kubelet.RefuseRunning) {
		return s, nil
	}
	next, err := p.reserveContainer(&s, pod, i, affinity)
	if err != nil && (p.kubelet.RefuseRunning || !isAssigned && !pod.Running) {
		return s, err
	}
	return next, nil
}

// reserveContainer returns the state in which container i, which needs CPUs, has them. After an error the state is unchanged.
func (p *Policy) reserveContainer(s *State, pod *Pod, i int, affinity device.Mask) (State, error) {
	count := p.countCPUs(pod, i)
	if err := p.checkCores(s, count); err != nil {
		return *s, err
	}
	taken, err := p.takeAligned(p.free(s).Union(p.findReusableCPUs(s, pod, i)), count, affinity)
	if err != nil {
		return *s, newRefusal(err)
	}
	next := s.assign(pod.UID, pod.Containers[i].Name, taken)
	if next.Shared.IsEmpty() && !p.kubelet.EmptyPool {
		return *s, newRefusal(errEmptyPool)
	}
	return next, nil
}

// Reserve returns the state in which all containers of a pod have their exclusive CPUs; see ReserveContainer. affinity, which must not be nil, returns
// the NUMA nodes of the merged hint for container i, or zero. It is called with the state in which the containers before i have their CPUs, and only if
// container i needs CPUs.
//
// Reserve returns the error of affinity or ReserveContainer, and then s. It returns an error for a pod without UID, and for a container name that is
// empty or not unique.
func (p *Policy) Reserve(s State, pod *Pod, affinity func(s State, i int) (device.Mask, error)) (State, error) {
	if err := pod.validate(); err != nil {
		return s, err
	}
	next := s
	for i := range pod.Containers {
		if !p.static || p.countCPUs(pod, i) == 0 {
			continue
		}
		nodes, err := affinity(next, i)
		if err == nil {
			next, err = p.ReserveContainer(next, pod, i, nodes)
		}
		if err != nil {
			return s, err
		}
	}
	return next, nil
}

// newRefusal returns the refusal for an error of an allocation. Source: GetPodAdmitResult in pkg/kubelet/cm/admission/errors.go.
func newRefusal(err error) error {
	return &device.Refusal{
		Reason: device.ReasonUnexpectedAdmissionError, Message: fmt.Sprintf("Allocate failed due to %v, which is unexpected", err), Err: err,
	}
}

// checkCores returns a refusal if count CPUs are no whole cores, or fewer CPUs of whole cores are free, with the option full-pcpus-only. CPUs that the
// container could reuse do not count. Source: enforceSMTAlignment in pkg/kubelet/cm/cpumanager/policy_static.go.
func (p *Policy) checkCores(s *State, count int) error {
	if !p.take.WholeCores {
		return nil
	}
	message, perCore := "", p.layout.perCore
	if available := s.Shared.Minus(p.reservedCores).Len(); count%perCore != 0 {
		message = fmt.Sprintf("SMT Alignment Error: requested %d cpus not multiple cpus per core = %d", count, perCore)
	} else if count > available {
		message = fmt.Sprintf("SMT Alignment Error: not enough free physical CPUs: available physical CPUs = %d, requested CPUs = %d, CPUs per core = %d",
			available, count, perCore)
	} else {
		return nil
	}
	return &device.Refusal{Reason: ReasonSMTAlignmentError, Message: message}
}

// free returns the CPUs that a container can get exclusively.
func (p *Policy) free(s *State) topology.CPUSet { return s.Shared.Minus(p.reserved) }

// findReusableCPUs returns the CPUs of earlier init containers of the pod, which container i can use. A later container has CPUs already if the agent has
// restarted and container i has lost its own; the kubelet would assign the CPUs of the later one again. Source: updateCPUsToReuse in
// pkg/kubelet/cm/cpumanager/policy_static.go.
func (p *Policy) findReusableCPUs(s *State, pod *Pod, i int) (set topology.CPUSet) {
	assigned := s.Assigned[pod.UID]
	if len(assigned) == 0 {
		return set
	}
	for j := range i {
		cpus, ok := assigned[pod.Containers[j].Name]
		switch {
		case !ok || p.countCPUs(pod, j) == 0:
		case pod.Containers[j].Kind == device.Init:
			set = set.Union(cpus)
		default:
			set = set.Minus(cpus)
		}
	}
	if pod.Containers[i].Kind == device.Init || p.kubelet.RefuseRunning {
		return set
	}
	for j := i + 1; j < len(pod.Containers); j++ {
		set = set.Minus(assigned[pod.Containers[j].Name])
	}
	return set
}

// takeAligned takes count of the available CPUs, first those of the NUMA nodes in affinity. Zero nodes are no preference. Source: allocateCPUs in
// pkg/kubelet/cm/cpumanager/policy_static.go.
func (p *Policy) takeAligned(available topology.CPUSet, count int, affinity device.Mask) (taken topology.CPUSet, err error) {
	if affinity != 0 {
		aligned := available.Intersect(p.expandAffinity(affinity))
		if taken, err = p.layout.Take(aligned, min(count, aligned.Len()), p.take); err != nil {
			return taken, err
		}
	}
	left := count - taken.Len()
	if left == 0 {
		return taken, nil
	}
	rest, err := p.layout.Take(available.Minus(taken), left, p.take)
	return taken.Union(rest), err
}

// expandAffinity returns the CPUs of these NUMA nodes, with the option align-by-socket those of their sockets.
func (p *Policy) expandAffinity(affinity device.Mask) (set topology.CPUSet) {
	for n, id := range p.layout.nodes.ids {
		if !affinity.Has(id) {
			continue
		}
		if !p.take.AlignSocket {
			set = set.Union(p.layout.nodes.sets[n])
			continue
		}
		for _, socket := range p.layout.socketsOfNode[n] {
			set = set.Union(p.layout.sockets.sets[socket])
		}
	}
	return set
}
