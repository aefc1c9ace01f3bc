// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cpus

import (
	"errors"
	"maps"

	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/device"
)

// IsPodLevel reports whether a pod has pod-level resources and Gates.PodLevel is set. Under the topology scope "pod", the caller reserves the CPUs of such a
// pod with ReservePod. Under the scope "container", and under the topology policy none, it reserves them with ReserveContainer.
func (p *Policy) IsPodLevel(pod *Pod) bool { return p.podLevel && pod.PodLevel }

// ReservePod returns the state in which a pod has all the CPUs that Pod.Millis requests, under the name [WholePod], and each of its containers a part of
// these CPUs. A container that needs exclusive CPUs has them for itself. Any other init container has all CPUs but those that earlier sidecars have for
// themselves. The remaining containers share the remaining CPUs. affinity has the NUMA nodes of the merged hint, whose CPUs are taken first; zero: any.
//
// Call ReservePod only if IsPodLevel is true and the topology manager has the scope "pod" and a policy other than none; a Policy does not know the scope.
// Otherwise call ReserveContainer for each container: under the scope "pod" with the one merged hint of PodHints, else with the merged hint of Hints.
//
// The state does not change, and there is no error, if the pod is not Guaranteed, requests no CPU or a fraction of a CPU, or has CPUs already. Its
// containers then run in the shared pool of the node, or keep their CPUs.
//
// ReservePod returns a [*device.Refusal] if the pod cannot have its CPUs, with the reason [device.ReasonEmptyPodSharedPoolError] if no CPU would be left
// to the containers that share. If Pod.Running is true, it returns s and no error in this case, and the pod runs in the shared pool of the
// node; with Kubelet.RefuseRunning, it returns the refusal. ReservePod returns an error for a pod without UID, and for a container name that is empty or not
// unique. Source: allocatePodForAdd in pkg/kubelet/cm/cpumanager/policy_static.go.
func (p *Policy) ReservePod(s State, pod *Pod, affinity device.Mask) (State, error) {
	if err := pod.validate(); err != nil {
		return s, err
	}
	count := p.countPeak(pod)
	if !p.static || count == 0 || len(s.Assigned[pod.UID]) > 0 {
		return s, nil
	}
	next, err := p.reservePod(&s, pod, count, affinity)
	switch {
	case err == nil:
		return next, nil
	case pod.Running && !p.kubelet.RefuseRunning:
		return s, nil
	}
	return s, err
}

// reservePod returns the state in which a pod without CPUs has count CPUs, and its containers have parts of them.
func (p *Policy) reservePod(s *State, pod *Pod, count int, affinity device.Mask) (State, error) {
	if err := p.checkShares(pod, count); err != nil {
		return *s, &device.Refusal{Reason: device.ReasonEmptyPodSharedPoolError, Message: err.Error(), Err: err}
	}
	if err := p.checkCores(s, count); err != nil {
		return *s, err
	}
	whole, err := p.takeAligned(p.free(s), count, affinity)
	if err != nil {
		return *s, newRefusal(err)
	}
	parts, err := p.dividePod(pod, whole)
	if err != nil {
		return *s, newRefusal(err)
	}
	next := State{Shared: s.Shared.Minus(whole), Assigned: maps.Clone(s.Assigned)}
	if next.Assigned == nil {
		next.Assigned = map[string]map[string]topology.CPUSet{}
	}
	next.Assigned[pod.UID] = parts
	if next.Shared.IsEmpty() && !p.kubelet.EmptyPool {
		return *s, newRefusal(errEmptyPool)
	}
	return next, nil
}

// errEmptyPool is the cause of the refusal of a container, or pod, that would get the last CPU of the shared pool.
var errEmptyPool = errors.New("no CPU would be left for containers without exclusive CPUs")

// checkShares returns an error if the containers of a pod of count CPUs that have exclusive CPUs leave none to the containers that share the CPUs of the
// pod. Source: validatePodScopeResources in pkg/kubelet/cm/cpumanager/policy_static.go.
func (p *Policy) checkShares(pod *Pod, count int) error {
	taken, isShared := 0, false // by sidecars and regular containers so far
	for i := range pod.Containers {
		switch exclusive := p.countCPUs(pod, i); {
		case pod.Containers[i].Kind != device.Init:
			taken += exclusive
			isShared = isShared || exclusive == 0
		case exclusive == 0 && taken >= count:
			return errors.New("pod rejected, pod has shared init containers but no cpus available for them")
		}
	}
	if isShared && taken >= count {
		return errors.New("pod rejected, sum of exclusive container cpu requests equals pod budget, leaving no cpus for shared containers")
	}
	return nil
}

// dividePod returns the part of each container of the CPUs of a pod, by name, and all of them under [WholePod].
func (p *Policy) dividePod(pod *Pod, whole topology.CPUSet) (map[string]topology.CPUSet, error) {
	parts := make(map[string]topology.CPUSet, len(pod.Containers)+1)
	rest := whole // without the CPUs of sidecars and regular containers so far
	for i := range pod.Containers {
		c := &pod.Containers[i]
		count := p.countCPUs(pod, i)
		if count == 0 {
			if c.Kind == device.Init {
				parts[c.Name] = rest
			}
			continue
		}
		set, err := p.layout.Take(rest, count, p.take)
		if err != nil {
			return nil, err
		}
		parts[c.Name] = set
		if c.Kind != device.Init {
			rest = rest.Minus(set)
		}
	}
	for i := range pod.Containers {
		if _, has := parts[pod.Containers[i].Name]; !has {
			parts[pod.Containers[i].Name] = rest
		}
	}
	parts[WholePod] = whole
	return parts, nil
}

// SharesPod reports whether ReservePod has given CPUs to the pod, and container i has none of them for itself. If [State.CPUs] returns exclusive CPUs for the
// container, other containers of the pod may use them; otherwise the container has lost its CPUs. The result does not depend on Gates.PodLevel.
func (s State) SharesPod(pod *Pod, i int) bool {
	_, isWhole := s.Assigned[pod.UID][WholePod]
	return isWhole && pod.countExclusive(i) == 0
}
