// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cpus

import (
	"maps"

	"github.com/seed81659283/nodeagent/cgroups/topology"
)

// State has the CPUs of all containers. It is a value: the methods of a [Policy] return a new State and do not modify the maps of their argument, which
// both may share. The zero value is the state of a node without containers, and has no shared pool: pass it to [Policy.Restore] before any other method.
type State struct {
	Shared topology.CPUSet // the shared pool, in which containers without exclusive CPUs run. See Policy.Restore for the reserved CPUs
	// Assigned has the exclusive CPUs by pod UID and container name, and those of a whole pod under the name [WholePod]. Only containers of one pod can
	// have CPUs in common. An empty set: Restore has removed all CPUs of the container, which runs in the shared pool.
	Assigned map[string]map[string]topology.CPUSet
}

// WholePod is the name under which a [State] has all CPUs that [Policy.ReservePod] has given a pod. No container has this name.
const WholePod = ""

// CPUs returns the CPUs on which a container runs, and whether they are exclusive. If they are, the container has them for itself or shares them with
// containers of its pod, see [State.SharesPod]. If not, the container runs in the shared pool. For the state of an [Allocator], call [Allocator.CPUs].
func (s *State) CPUs(podUID, container string) (set topology.CPUSet, exclusive bool) {
	if set = s.Assigned[podUID][container]; !set.IsEmpty() {
		return set, true
	}
	return s.Shared, false
}

// assign returns the state in which a container has these CPUs and the shared pool does not.
func (s *State) assign(podUID, container string, set topology.CPUSet) State {
	next := State{Shared: s.Shared.Minus(set), Assigned: maps.Clone(s.Assigned)}
	if next.Assigned == nil {
		next.Assigned = map[string]map[string]topology.CPUSet{}
	}
	containers := maps.Clone(next.Assigned[podUID])
	if containers == nil {
		containers = map[string]topology.CPUSet{}
	}
	containers[container] = set
	next.Assigned[podUID] = containers
	return next
}

// exclusive returns the exclusive CPUs of all containers.
func (s *State) exclusive() (set topology.CPUSet) {
	for _, containers := range s.Assigned {
		for _, cpus := range containers {
			set = set.Union(cpus)
		}
	}
	return set
}

// Retain returns the state without the containers for which keep returns false. Their CPUs return to the shared pool, except those of other containers
// of the pod: an init container shares CPUs with later containers. The CPUs of a whole pod return with those of its last container; Retain does not call
// keep for [WholePod]. The result is s if keep returns true for all containers.
//
// Source: removeStaleState in pkg/kubelet/cm/cpumanager/cpu_manager.go, RemoveContainer in policy_static.go.
func (p *Policy) Retain(s State, keep func(podUID, container string) bool) State {
	next, changed := State{Assigned: make(map[string]map[string]topology.CPUSet, len(s.Assigned))}, false
	for uid, containers := range s.Assigned {
		kept := containers
		for container := range containers {
			if container == WholePod && len(containers) > 1 || container != WholePod && keep(uid, container) {
				continue
			}
			if len(kept) == len(containers) {
				kept = maps.Clone(containers)
			}
			delete(kept, container)
			changed = true
		}
		if _, hasWhole := kept[WholePod]; len(kept) > 1 || len(kept) == 1 && !hasWhole {
			next.Assigned[uid] = kept
		}
	}
	if !changed {
		return s
	}
	next.Shared, _ = p.share(&next)
	return next
}

// Release returns the state without the pod of this UID. The CPUs of the pod return to the shared pool.
func (p *Policy) Release(s State, podUID string) State {
	if _, ok := s.Assigned[podUID]; !ok {
		return s
	}
	return p.Retain(s, func(uid, _ string) bool { return uid != podUID })
}

// share returns the shared pool: the CPUs of the machine that no container has exclusively. The reserved CPUs are not in it with strict-cpu-reservation,
// unless no other CPU is free. isStrict is false in that case, or if no CPU is free at all.
func (p *Policy) share(s *State) (shared topology.CPUSet, isStrict bool) {
	exclusive := s.exclusive()
	shared = p.pool().Minus(exclusive)
	if shared.IsEmpty() && !p.kubelet.EmptyPool {
		return p.layout.all.Minus(exclusive), false
	}
	return shared, true
}
