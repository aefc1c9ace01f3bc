// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package numa

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/seed81659283/nodeagent/device"
)

// Saved is the content of a file with the memory of containers. A record is the agent's own file: [Policy.Save] returns its content, [WriteRecord] writes
// and [ReadRecord] reads it. A checkpoint is the file memory_manager_state of a kubelet: [Policy.Export], [WriteCheckpoint] and [ReadCheckpoint]. An
// [Allocator] calls these functions itself.
type Saved struct {
	Path   string                        // of a checkpoint that was read, for the errors of [Policy.Restore]; otherwise empty
	Policy string                        // name of the policy
	Nodes  []Node                        // use of the NUMA nodes, by ID
	Pods   map[string]map[string][]Block // blocks by pod UID and container, sorted by type
}

// Restored is the state of a restarted agent.
type Restored struct {
	State   State
	Changes []string // differences of machine and configuration from those of the previous agent, as sentences for a log
}

// Save returns the content of a record of s. Callers must not change the maps and slices of the result, which are also those of s.
func (p *Policy) Save(s State) Saved {
	return Saved{Policy: p.Name(), Nodes: p.Nodes(s), Pods: s.pods.collectPods()}
}

// Export returns the content of a checkpoint of s for a kubelet. It omits containers with memory on NUMA nodes or of types that the machine lacks: with
// them, no kubelet would start. Callers must not change the maps and slices of the result, which may be those of s.
func (p *Policy) Export(s State) Saved {
	if !s.mixed {
		return p.Save(s)
	}
	next := p.clone(&s)
	for uid, containers := range s.pods.collectPods() {
		var unusable []string
		for name, blocks := range containers {
			if slices.ContainsFunc(blocks, func(b Block) bool { return b.Nodes&^p.machine != 0 || !p.hasType(b) }) {
				unusable = append(unusable, name)
			}
		}
		if slices.Contains(unusable, WholePod) {
			unusable = slices.Collect(maps.Keys(containers))
		}
		if len(unusable) > 0 {
			next.pods = next.pods.set(uid, copyWithout(containers, unusable))
		}
	}
	p.countUse(&next)
	return p.Save(next)
}

// Restore returns the state of a file. The caller must not change the maps and slices of saved any more. If saved is of the same policy, all containers
// keep their blocks, even if the machine, the reserved memory or Config.PodLevel has changed: Restore then computes the free memory of the NUMA nodes from
// the blocks. A block on a NUMA node that the machine lacks is kept, and not counted. If saved is of the other policy, no container has memory of its own.
//
// Restore returns an error only with Kubelet.RefuseChanged: the kubelet's, if the policy, the reserved memory or the machine has changed. Source:
// validateState in pkg/kubelet/cm/memorymanager/policy_static.go, restoreState in pkg/kubelet/cm/memorymanager/state/state_checkpoint.go.
func (p *Policy) Restore(saved Saved) (Restored, error) {
	if saved.Policy != p.Name() {
		if p.kubelet.RefuseChanged {
			err := fmt.Errorf("[memorymanager] configured policy %q differs from state checkpoint policy %q", p.Name(), saved.Policy)
			return Restored{}, wrapCheckpoint(saved.Path, err)
		}
		return Restored{Changes: []string{fmt.Sprintf("the policy was %q, and is %q: running containers have no memory of their own", saved.Policy, p.Name())}}, nil
	}
	if !p.static {
		return Restored{}, nil
	}
	if len(saved.Nodes) == 0 && len(saved.Pods) > 0 && p.kubelet.RefuseChanged {
		return Restored{}, errors.New("[memorymanager] machine state can not be empty when it has memory assignments")
	}
	next := State{pods: newPodTable(maps.Clone(saved.Pods))}
	p.countUse(&next)
	changes := p.findUnplaced(&next)
	if len(changes) > 0 && p.kubelet.RefuseChanged {
		return Restored{}, p.describeUnplaced(&next)
	}
	changes = append(changes, p.findUngated(&next)...)
	if len(saved.Nodes) == 0 {
		return Restored{State: next, Changes: changes}, nil
	}
	differences := p.compareNodes(&next, saved.Nodes)
	if len(differences) > 0 && p.kubelet.RefuseChanged {
		return Restored{}, errors.New("[memorymanager] the expected machine state is different from the real one")
	}
	if len(differences) == 0 && !next.mixed && isConsistent(saved.Nodes) { // keeps how much each node of a group has
		for i := range saved.Nodes {
			for t, name := range p.types {
				next.free[i*len(p.types)+t] = saved.Nodes[i].Memory[name].Free
			}
		}
	}
	return Restored{State: next, Changes: append(changes, differences...)}, nil
}

// isConsistent reports whether the allocatable memory of each node is that in use and the free memory.
func isConsistent(nodes []Node) bool {
	for i := range nodes {
		for _, a := range nodes[i].Memory {
			if a.Free > a.Allocatable || a.Allocatable-a.Free != a.Reserved {
				return false
			}
		}
	}
	return true
}

// findUnplaced describes the blocks on NUMA nodes or of types that the machine lacks.
func (p *Policy) findUnplaced(s *State) (changes []string) {
	for _, uid := range s.Pods() {
		for _, name := range slices.Sorted(maps.Keys(s.pods.get(uid))) {
			for _, b := range s.pods.get(uid)[name] {
				if missing := b.Nodes &^ p.machine; missing != 0 {
					changes = append(changes, fmt.Sprintf("%s: the machine has no NUMA nodes %s", describeHolder(uid, name), missing))
				}
				if !p.hasType(b) {
					changes = append(changes, fmt.Sprintf("%s: the NUMA nodes %s have no %s", describeHolder(uid, name), b.Nodes, b.Type))
				}
			}
		}
	}
	return changes
}

// describeHolder returns the name of a container, or of a whole pod, for a sentence.
func describeHolder(uid, container string) string {
	if container == WholePod {
		return "pod " + uid
	}
	return fmt.Sprintf("pod %s, container %s", uid, container)
}

// findUngated describes the pods that keep their memory although the gate of such pods is off by now.
func (p *Policy) findUngated(s *State) (changes []string) {
	for _, uid := range s.Pods() {
		if _, isWhole := s.pods.get(uid)[WholePod]; isWhole && !p.podLevel {
			changes = append(changes, fmt.Sprintf("pod %s keeps its memory: the gate PodLevelResourceManagers is off now", uid))
		}
	}
	return changes
}

// hasType reports whether all nodes of a block that the machine has have its type of memory.
func (p *Policy) hasType(b Block) bool {
	t := slices.Index(p.types, b.Type)
	for id := range (b.Nodes & p.machine).Nodes() {
		if t < 0 || !p.present[int(p.position[id])*len(p.types)+t] {
			return false
		}
	}
	return true
}

// describeUnplaced returns the kubelet's error for the first block on a NUMA node or of a type that the machine lacks; the kubelet's names any of them.
func (p *Policy) describeUnplaced(s *State) error {
	for _, uid := range s.Pods() {
		for _, name := range slices.Sorted(maps.Keys(s.pods.get(uid))) {
			for _, b := range s.pods.get(uid)[name] {
				for id := range b.Nodes.Nodes() {
					switch {
					case !p.machine.Has(id):
						return fmt.Errorf("[memorymanager] (pod: %s, container: %s) the memory assignment uses the NUMA that does not exist", uid, name)
					case !p.hasType(Block{Type: b.Type, Nodes: 1 << id}):
						return fmt.Errorf("[memorymanager] (pod: %s, container: %s) the memory assignment uses memory resource that does not exist", uid, name)
					}
				}
			}
		}
	}
	return nil
}

// compareNodes describes the differences of saved nodes from those of s, whose use was computed from its blocks. Within a group, only the sums of the
// nodes must be equal. Source: areMachineStatesEqual in pkg/kubelet/cm/memorymanager/policy_static.go.
func (p *Policy) compareNodes(s *State, saved []Node) (differences []string) {
	current := p.Nodes(*s)
	if !slices.EqualFunc(current, saved, func(a, b Node) bool { return a.ID == b.ID }) {
		return []string{fmt.Sprintf("the NUMA nodes were %s, and are %s", describeIDs(saved), describeIDs(current))}
	}
	for i := range saved {
		a, b := &saved[i], &current[i]
		if a.Assignments != b.Assignments || a.Group != b.Group {
			differences = append(differences, fmt.Sprintf("NUMA node %d had %d blocks and the group %s, and has %d blocks and the group %s", a.ID, a.Assignments, a.Group, b.Assignments, b.Group))
		}
		for _, name := range sortTypes(a.Memory, b.Memory) {
			x, had := a.Memory[name]
			y, has := b.Memory[name]
			if x.Total != y.Total || x.SystemReserved != y.SystemReserved || x.Allocatable != y.Allocatable || had != has {
				differences = append(differences, fmt.Sprintf("NUMA node %d had %d bytes of %s, %d of them reserved and %d allocatable, and has %d, %d and %d",
					a.ID, x.Total, name, x.SystemReserved, x.Allocatable, y.Total, y.SystemReserved, y.Allocatable))
				continue
			}
			before, after := sumGroup(saved, a.Group, name), sumGroup(current, a.Group, name)
			if before.Free != after.Free || before.Reserved != after.Reserved {
				differences = append(differences, fmt.Sprintf("NUMA nodes %s had %d bytes of %s free and %d in use, and have %d and %d",
					a.Group, before.Free, name, before.Reserved, after.Free, after.Reserved))
			}
		}
	}
	return differences
}

// sortTypes returns the types of memory in both maps in ascending order.
func sortTypes(a, b map[string]Amounts) []string {
	all := maps.Clone(a)
	if all == nil {
		all = map[string]Amounts{}
	}
	maps.Copy(all, b)
	return slices.Sorted(maps.Keys(all))
}

// sumGroup returns the free and reserved memory of a type on the nodes in group.
func sumGroup(nodes []Node, group device.Mask, name string) (sum Amounts) {
	for i := range nodes {
		if group.Has(nodes[i].ID) {
			sum.Free = add(sum.Free, nodes[i].Memory[name].Free)
			sum.Reserved = add(sum.Reserved, nodes[i].Memory[name].Reserved)
		}
	}
	return sum
}

// describeIDs returns the IDs of nodes as text.
func describeIDs(nodes []Node) string {
	ids := make([]int, len(nodes))
	for i := range nodes {
		ids[i] = nodes[i].ID
	}
	return fmt.Sprint(ids)
}
