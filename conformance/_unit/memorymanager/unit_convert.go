// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package memorymanager

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	cadvisorapi "github.com/google/cadvisor/lib/model"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	resourcehelper "k8s.io/component-helpers/resource"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	v1qos "k8s.io/kubernetes/pkg/apis/core/v1/helper/qos"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager/state"
	cmqos "k8s.io/kubernetes/pkg/kubelet/cm/qos"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager/bitmask"

	"github.com/seed81659283/nodeagent/cgroups/numa"
	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/device"
)

// unitMachine converts the NUMA nodes of a machine.
func unitMachine(info *cadvisorapi.MachineInfo) *topology.Machine {
	machine := &topology.Machine{}
	if info == nil {
		return machine
	}
	for _, n := range info.Topology {
		node := topology.Node{ID: n.Id, Memory: n.Memory}
		for _, h := range n.HugePages {
			node.HugePages = append(node.HugePages, topology.HugePages{Size: h.PageSize * 1024, Count: h.NumPages})
		}
		machine.Nodes = append(machine.Nodes, node)
	}
	return machine
}

// unitMachineOf returns a machine whose nodes have the allocatable memory of the kubelet's state, and the memory that no container gets. Tests of the
// kubelet have states that do not fit their machine.
func unitMachineOf(nodes state.NUMANodeMap) (*topology.Machine, systemReservedMemory) {
	machine, reserved := &topology.Machine{}, systemReservedMemory{}
	for _, id := range slices.Sorted(maps.Keys(nodes)) {
		node := topology.Node{ID: id}
		reserved[id] = map[v1.ResourceName]uint64{}
		for name, t := range nodes[id].MemoryMap {
			reserved[id][name] = t.SystemReserved
			total := t.Allocatable + t.SystemReserved
			node.Memory += total
			if size, ok := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix); ok {
				q := resource.MustParse(size)
				node.HugePages = append(node.HugePages, topology.HugePages{Size: uint64(q.Value()), Count: total / uint64(q.Value())})
			}
		}
		machine.Nodes = append(machine.Nodes, node)
	}
	return machine, reserved
}

// unitPolicy returns our policy on a machine. At least one byte is reserved, as in each configuration of a kubelet.
func unitPolicy(machine *topology.Machine, reserved systemReservedMemory) *numa.Policy {
	config := numa.Config{
		Policy: numa.PolicyStatic, SystemReserved: map[string]resource.Quantity{}, PodLevel: utilfeature.DefaultFeatureGate.Enabled(features.PodLevelResourceManagers),
		Kubelet: numa.Kubelet{FreeInit: true, RefuseChanged: true},
	}
	if len(machine.Nodes) == 0 {
		machine.Nodes = []topology.Node{{}}
	}
	var total uint64
	for i := range machine.Nodes {
		total += reserved[machine.Nodes[i].ID][v1.ResourceMemory]
	}
	for i := range machine.Nodes {
		limits := map[string]resource.Quantity{}
		for name, size := range reserved[machine.Nodes[i].ID] {
			if size > 0 {
				limits[string(name)] = *resource.NewQuantity(int64(size), resource.BinarySI)
			}
		}
		if total == 0 && i == 0 {
			machine.Nodes[i].Memory++
			limits[numa.Memory] = *resource.NewQuantity(1, resource.BinarySI)
		}
		for name, q := range limits {
			sum := config.SystemReserved[name]
			sum.Add(q)
			config.SystemReserved[name] = sum
		}
		config.ReservedMemory = append(config.ReservedMemory, numa.Reservation{Node: machine.Nodes[i].ID, Limits: limits})
	}
	policy, err := numa.NewPolicy(machine, config)
	if err != nil {
		panic(err)
	}
	return policy
}

// unitNodes converts the use of the NUMA nodes.
func unitNodes(machine state.NUMANodeMap) (nodes []numa.Node) {
	for _, id := range slices.Sorted(maps.Keys(machine)) {
		n := machine[id]
		out := numa.Node{ID: id, Assignments: n.NumberOfAssignments, Group: unitMask(n.Cells), Memory: map[string]numa.Amounts{}}
		if out.Group == 0 {
			out.Group = 1 << id
		}
		for name, t := range n.MemoryMap {
			out.Memory[string(name)] = numa.Amounts{Total: t.TotalMemSize, SystemReserved: t.SystemReserved, Allocatable: t.Allocatable, Reserved: t.Reserved, Free: t.Free}
		}
		nodes = append(nodes, out)
	}
	return nodes
}

// unitKubeletNodes converts the use of the NUMA nodes to the kubelet's type.
func unitKubeletNodes(nodes []numa.Node) state.NUMANodeMap {
	machine := state.NUMANodeMap{}
	for _, n := range nodes {
		out := &state.NUMANodeState{NumberOfAssignments: n.Assignments, Cells: slices.Collect(n.Group.Nodes()), MemoryMap: map[v1.ResourceName]*state.MemoryTable{}}
		for name, a := range n.Memory {
			out.MemoryMap[v1.ResourceName(name)] = &state.MemoryTable{TotalMemSize: a.Total, SystemReserved: a.SystemReserved, Allocatable: a.Allocatable, Reserved: a.Reserved, Free: a.Free}
		}
		machine[n.ID] = out
	}
	return machine
}

func unitMask(ids []int) (m device.Mask) {
	for _, id := range ids {
		m |= 1 << id
	}
	return m
}

// unitBlocks converts the blocks of all containers and pods, sorted by type.
func unitBlocks(s state.State) map[string]map[string][]numa.Block {
	convert := func(blocks []state.Block) []numa.Block {
		list := []numa.Block{}
		for _, b := range blocks {
			list = append(list, numa.Block{Type: string(b.Type), Nodes: unitMask(b.NUMAAffinity), Size: b.Size})
		}
		slices.SortFunc(list, func(a, b numa.Block) int { return cmp.Compare(a.Type, b.Type) })
		return list
	}
	pods := map[string]map[string][]numa.Block{}
	for uid, containers := range s.GetMemoryAssignments() {
		pods[uid] = map[string][]numa.Block{}
		for name, blocks := range containers {
			pods[uid][name] = convert(blocks)
		}
		if whole := s.GetPodMemoryBlocks(uid); len(whole) > 0 {
			pods[uid][numa.WholePod] = convert(whole)
		}
	}
	return pods
}

// unitAffinity converts a merged hint.
func unitAffinity(hint topologymanager.TopologyHint) device.Hint {
	affinity := device.Hint{Preferred: hint.Preferred}
	if hint.NUMANodeAffinity != nil {
		affinity.Nodes = unitMask(hint.NUMANodeAffinity.GetBits())
	}
	return affinity
}

// unitState returns our policy and state for the kubelet's state.
func unitState(s state.State) (*numa.Policy, numa.State) {
	policy := unitPolicy(unitMachineOf(s.GetMachineState()))
	return policy, policy.UnitState(unitNodes(s.GetMachineState()), unitBlocks(s))
}

// unitStore writes to the kubelet's state what has changed since before.
func unitStore(s state.State, policy *numa.Policy, before, after numa.State) {
	machine := s.GetMachineState()
	old, current := policy.Nodes(before), policy.Nodes(after)
	for i, n := range current {
		node, ok := machine[n.ID]
		if !ok {
			continue
		}
		if n.Assignments != old[i].Assignments || n.Group != old[i].Group {
			node.NumberOfAssignments, node.Cells = n.Assignments, slices.Collect(n.Group.Nodes())
		}
		for name, t := range node.MemoryMap {
			t.Reserved += n.Memory[string(name)].Reserved - old[i].Memory[string(name)].Reserved
			t.Free = n.Memory[string(name)].Free
		}
	}
	s.SetMachineState(machine)
	was, is := policy.Save(before).Pods, policy.Save(after).Pods
	for uid, containers := range was {
		for name := range containers {
			_, ok := is[uid][name]
			switch {
			case ok:
			case name == numa.WholePod:
				s.DeletePod(uid)
			default:
				s.Delete(uid, name)
			}
		}
	}
	for uid, containers := range is {
		for name, blocks := range containers {
			if old, ok := was[uid][name]; ok && slices.Equal(old, blocks) {
				continue
			}
			var list []state.Block
			for _, b := range blocks {
				list = append(list, state.Block{NUMAAffinity: slices.Collect(b.Nodes.Nodes()), Type: v1.ResourceName(b.Type), Size: b.Size})
			}
			if name == numa.WholePod {
				s.SetPodMemoryBlocks(uid, list)
				continue
			}
			s.SetMemoryBlocks(uid, name, list)
		}
	}
}

// unitPod converts a pod.
func unitPod(pod *v1.Pod) (*numa.Pod, error) {
	out := &numa.Pod{
		UID: string(pod.UID), Namespace: pod.Namespace, Name: pod.Name, Guaranteed: v1qos.GetPodQOS(pod) == v1.PodQOSGuaranteed, PodLevel: resourcehelper.IsPodLevelResourcesSet(pod),
	}
	if out.PodLevel {
		var err error
		if out.Requests, err = numa.ConvertRequests(pod.Spec.Resources.Requests); err != nil {
			return nil, err
		}
	}
	add := func(c *v1.Container, kind device.ContainerKind) error {
		requests, err := numa.ConvertRequests(c.Resources.Requests)
		out.Containers = append(out.Containers, numa.Container{Name: c.Name, Kind: kind, Requests: requests, Guaranteed: cmqos.IsContainerEquivalentQOSGuaranteed(c)})
		return err
	}
	for i := range pod.Spec.InitContainers {
		kind := device.Init
		if podutil.IsRestartableInitContainer(&pod.Spec.InitContainers[i]) {
			kind = device.Sidecar
		}
		if err := add(&pod.Spec.InitContainers[i], kind); err != nil {
			return nil, err
		}
	}
	for i := range pod.Spec.Containers {
		if err := add(&pod.Spec.Containers[i], device.Regular); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// unitContainer returns the index of a container.
func unitContainer(pod *numa.Pod, c *v1.Container) int {
	return slices.IndexFunc(pod.Containers, func(o numa.Container) bool { return o.Name == c.Name })
}

// unitHints converts the hints of the resources, which are sorted by name. Nil is no preference.
func unitHints[V any](lists [][]device.Hint, requested map[v1.ResourceName]V) map[string][]topologymanager.TopologyHint {
	if lists == nil {
		return nil
	}
	names, out := slices.Sorted(maps.Keys(requested)), map[string][]topologymanager.TopologyHint{}
	for i, hints := range lists {
		list := []topologymanager.TopologyHint{}
		for _, h := range hints {
			mask, err := bitmask.NewBitMask(slices.Collect(h.Nodes.Nodes())...)
			if err != nil {
				panic(err)
			}
			list = append(list, topologymanager.TopologyHint{NUMANodeAffinity: mask, Preferred: h.Preferred})
		}
		out[string(names[i])] = list
	}
	return out
}
