// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cpus

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/seed81659283/nodeagent/cgroups/topology"
)

// Notice reports that [Policy.Restore] found CPUs that a new assignment would not have: a container keeps exclusive CPUs that the policy would not
// assign now, a container has lost CPUs, or the shared pool has reserved CPUs despite strict-cpu-reservation. A Notice is for the log: the pod runs on, and a
// new pod in its place follows the configuration. Lost CPUs are reported once, by the Restore that removes them. Each later Restore repeats the other
// notices while their reason lasts.
type Notice struct {
	PodUID, Container string          // the notice is about the shared pool if PodUID is empty, and about all CPUs of a pod if Container is [WholePod]
	Before, After     topology.CPUSet // CPUs before and after Restore; a container with equal sets keeps them. Before is empty for the shared pool
	Reason            string          // for people; the text may change
}

// String returns a line for the log.
func (n Notice) String() string {
	name := fmt.Sprintf("pod %s, container %s", n.PodUID, n.Container)
	switch {
	case n.PodUID == "":
		name = "the shared pool"
	case n.Container == WholePod:
		name = "pod " + n.PodUID
	}
	if n.Before == n.After {
		return fmt.Sprintf("%s keeps CPUs %s: %s", name, n.Before, n.Reason)
	}
	return fmt.Sprintf("%s had CPUs %q and has %q: %s", name, n.Before, n.After, n.Reason)
}

// Restore returns the state with which an agent continues that has loaded s, perhaps of another configuration or machine. A container keeps its exclusive
// CPUs, also under the policy none, with three exceptions: the machine lacks the CPU, another pod with a lower UID has the CPU, too, or no CPU would be left
// to the shared pool. A container that loses all its CPUs has an empty set in the state, and runs in the shared pool. [Notice] describes the notices.
//
// The shared pool gets the CPUs that no container has. With strict-cpu-reservation, it gets reserved CPUs only if no other CPU is left. If no CPU is left
// at all, Restore moves one CPU from its containers to the pool: the lowest reserved CPU, or the lowest CPU of the machine if none is reserved. With
// Kubelet.EmptyPool, Restore neither moves a CPU nor gives the pool reserved CPUs, and the pool may be empty.
//
// With Kubelet.RefuseChanged, Restore returns no notices. If s does not fit the machine or the configuration, Restore returns the error with which a
// kubelet does not start. If s fits, the policy none returns s. The policy static returns s with two changes: it removes the entries of [WholePod] if
// Gates.PodLevel is false, and it sets Shared if s is the zero State. Source: validateState in pkg/kubelet/cm/cpumanager/policy_static.go.
func (p *Policy) Restore(s State) (State, []Notice, error) {
	if p.kubelet.RefuseChanged {
		next, err := p.checkState(s)
		return next, nil, err
	}
	next := State{Assigned: make(map[string]map[string]topology.CPUSet, len(s.Assigned))}
	var notices []Notice
	var taken topology.CPUSet // by previous pods
	for _, uid := range slices.Sorted(maps.Keys(s.Assigned)) {
		containers := map[string]topology.CPUSet{}
		var ofPod topology.CPUSet
		for _, container := range slices.Sorted(maps.Keys(s.Assigned[uid])) {
			before := s.Assigned[uid][container]
			after, reason := p.restoreSet(before, taken)
			if reason == "" && container == WholePod && !p.podLevel {
				reason = "the gate PodLevelResourceManagers is off now"
			}
			if reason != "" {
				notices = append(notices, Notice{PodUID: uid, Container: container, Before: before, After: after, Reason: reason})
			}
			containers[container] = after
			ofPod = ofPod.Union(after)
		}
		next.Assigned[uid] = containers
		taken = taken.Union(ofPod)
	}
	return next, append(notices, p.restorePool(&next)...), nil
}

// restoreSet returns the CPUs that a container keeps, and the reason for a notice, or "". taken are the CPUs of other pods.
func (p *Policy) restoreSet(set, taken topology.CPUSet) (kept topology.CPUSet, reason string) {
	if missing := set.Minus(p.layout.all); !missing.IsEmpty() {
		return set.Intersect(p.layout.all).Minus(taken), fmt.Sprintf("the machine has no CPUs %s any more", missing)
	}
	if both := set.Intersect(taken); !both.IsEmpty() {
		return set.Minus(taken), fmt.Sprintf("CPUs %s are those of another pod, too", both)
	}
	switch {
	case set.IsEmpty():
		return set, ""
	case !p.static:
		return set, "the policy none assigns no CPUs"
	case set.CountCommon(p.reserved) > 0:
		return set, fmt.Sprintf("CPUs %s are reserved now", set.Intersect(p.reserved))
	case p.take.WholeCores && !p.hasWholeCores(set):
		return set, "full-pcpus-only is set now, and they are no whole cores"
	}
	return set, ""
}

// hasWholeCores reports whether the set has all CPUs of each of its cores.
func (p *Policy) hasWholeCores(set topology.CPUSet) bool {
	for id := range set.All() {
		if !p.layout.cores.sets[p.layout.cores.of[id]].Minus(set).IsEmpty() {
			return false
		}
	}
	return true
}

// restorePool sets s.Shared. If all CPUs are exclusive, which only happens after CPUs went offline, the lowest reserved CPU becomes shared: containers
// without exclusive CPUs must run somewhere.
func (p *Policy) restorePool(s *State) (notices []Notice) {
	shared, isStrict := p.share(s)
	if shared.IsEmpty() && !p.kubelet.EmptyPool {
		shared, isStrict = topology.NewCPUSet(max(p.reserved.Lowest(), p.layout.all.Lowest())), true
		notices = p.revoke(s, shared)
	}
	s.Shared = shared
	if !isStrict {
		notices = append(notices, Notice{After: shared, Reason: "all CPUs that are not reserved are exclusive, so that it has reserved ones"})
	}
	return notices
}

// revoke removes CPUs from all containers.
func (p *Policy) revoke(s *State, set topology.CPUSet) (notices []Notice) {
	for _, uid := range slices.Sorted(maps.Keys(s.Assigned)) {
		for _, container := range slices.Sorted(maps.Keys(s.Assigned[uid])) {
			before := s.Assigned[uid][container]
			after := before.Minus(set)
			if before == after {
				continue
			}
			s.Assigned[uid][container] = after
			notices = append(notices, Notice{PodUID: uid, Container: container, Before: before, After: after, Reason: "no CPU was left for the shared pool"})
		}
	}
	return notices
}

// checkState returns the state of a kubelet after its start, or its error. Of several containers that do not fit, the error names the first; the
// kubelet's names any one.
func (p *Policy) checkState(s State) (State, error) {
	if !p.static {
		return s, nil
	}
	if !p.podLevel {
		s = s.withoutWhole()
	}
	if s.Shared.IsEmpty() {
		if len(s.Assigned) > 0 {
			return State{}, errors.New("default cpuset cannot be empty")
		}
		s.Shared = p.pool()
		return s, nil
	}
	reserved := p.reserved.Intersect(s.Shared)
	if p.strict && !reserved.IsEmpty() {
		return State{}, fmt.Errorf("some of strictly reserved cpus: %q are present in defaultCpuSet: %q", reserved, s.Shared)
	}
	if !p.strict && reserved != p.reserved {
		return State{}, fmt.Errorf("not all reserved cpus: %q are present in defaultCpuSet: %q", p.reserved, s.Shared)
	}
	for _, uid := range slices.Sorted(maps.Keys(s.Assigned)) {
		for _, container := range slices.Sorted(maps.Keys(s.Assigned[uid])) {
			if set := s.Assigned[uid][container]; container != WholePod && set.CountCommon(s.Shared) > 0 {
				return State{}, fmt.Errorf("pod: %s, container: %s cpuset: %q overlaps with default cpuset %q", uid, container, set, s.Shared)
			}
		}
	}
	if known := s.Shared.Union(s.exclusive()); known != p.pool() {
		return State{}, fmt.Errorf("current set of available CPUs %q doesn't match with CPUs in state %q", p.pool(), known)
	}
	return s, nil
}

// withoutWhole returns the state without the CPUs of whole pods: a kubelet without the gate PodLevelResourceManagers does not read them.
func (s *State) withoutWhole() State {
	next := State{Shared: s.Shared, Assigned: make(map[string]map[string]topology.CPUSet, len(s.Assigned))}
	for uid, containers := range s.Assigned {
		next.Assigned[uid] = containers
		if _, has := containers[WholePod]; has {
			next.Assigned[uid] = maps.Clone(containers)
			delete(next.Assigned[uid], WholePod)
		}
	}
	return next
}
