// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cpumanager

import (
	"maps"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	v1qos "k8s.io/kubernetes/pkg/apis/core/v1/helper/qos"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	kubelettopology "k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/topology"
	cmqos "k8s.io/kubernetes/pkg/kubelet/cm/qos"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager/bitmask"
	"k8s.io/utils/cpuset"

	"github.com/seed81659283/nodeagent/cgroups/cpus"
	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/device"
)

// unitMachine converts a machine.
func unitMachine(topo *kubelettopology.CPUTopology) *topology.Machine {
	machine := &topology.Machine{}
	for _, id := range slices.Sorted(maps.Keys(topo.CPUDetails)) {
		info := topo.CPUDetails[id]
		machine.CPUs = append(machine.CPUs, topology.CPU{ID: id, Core: info.CoreID, Socket: info.SocketID, Node: info.NUMANodeID, Cache: info.UncoreCacheID})
	}
	return machine
}

func unitSet(set cpuset.CPUSet) topology.CPUSet { return topology.NewCPUSet(set.UnsortedList()...) }

func unitKubeletSet(set topology.CPUSet) cpuset.CPUSet {
	return cpuset.New(slices.Collect(set.All())...)
}

// unitPolicyOptions returns the options of the policy as in a configuration.
func unitPolicyOptions(o StaticPolicyOptions) map[string]string {
	return map[string]string{
		FullPCPUsOnlyOption: strconv.FormatBool(o.FullPhysicalCPUsOnly), DistributeCPUsAcrossNUMAOption: strconv.FormatBool(o.DistributeCPUsAcrossNUMA),
		AlignBySocketOption: strconv.FormatBool(o.AlignBySocket), DistributeCPUsAcrossCoresOption: strconv.FormatBool(o.DistributeCPUsAcrossCores),
		StrictCPUReservationOption: strconv.FormatBool(o.StrictCPUReservation), PreferAlignByUnCoreCacheOption: strconv.FormatBool(o.PreferAlignByUncoreCacheOption),
	}
}

// unitTopologyPolicy returns the policy of the topology manager.
func unitTopologyPolicy(store topologymanager.Store) device.Policy {
	if store == nil || store.GetPolicy() == nil {
		return device.None
	}
	for policy := device.None; policy <= device.SingleNUMANode; policy++ {
		if policy.String() == store.GetPolicy().Name() {
			return policy
		}
	}
	return device.None
}

// unitPod converts a pod.
func unitPod(pod *v1.Pod) *cpus.Pod {
	out := &cpus.Pod{
		UID: string(pod.UID), Namespace: pod.Namespace, Name: pod.Name, Guaranteed: v1qos.GetPodQOS(pod) == v1.PodQOSGuaranteed, PodLevel: resourcehelper.IsPodLevelResourcesSet(pod),
	}
	if out.PodLevel {
		out.Millis = pod.Spec.Resources.Requests.Cpu().MilliValue()
	}
	add := func(c *v1.Container, kind device.ContainerKind) {
		out.Containers = append(out.Containers, cpus.Container{
			Name: c.Name, Kind: kind, Millis: c.Resources.Requests.Cpu().MilliValue(), Guaranteed: cmqos.IsContainerEquivalentQOSGuaranteed(c),
		})
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if podutil.IsRestartableInitContainer(c) {
			add(c, device.Sidecar)
		} else {
			add(c, device.Init)
		}
	}
	for i := range pod.Spec.Containers {
		add(&pod.Spec.Containers[i], device.Regular)
	}
	return out
}

// unitContainer returns the index of a container of the pod, which gets it if it has none of the name.
func unitContainer(pod *cpus.Pod, c *v1.Container) int {
	for i := range pod.Containers {
		if pod.Containers[i].Name == c.Name {
			return i
		}
	}
	pod.Containers = append(pod.Containers, cpus.Container{
		Name: c.Name, Millis: c.Resources.Requests.Cpu().MilliValue(), Guaranteed: cmqos.IsContainerEquivalentQOSGuaranteed(c),
	})
	return len(pod.Containers) - 1
}

// unitState converts the state.
func unitState(s state.State) cpus.State {
	out := cpus.State{Shared: unitSet(s.GetDefaultCPUSet()), Assigned: map[string]map[string]topology.CPUSet{}}
	for uid, containers := range s.GetCPUAssignments() {
		out.Assigned[uid] = map[string]topology.CPUSet{}
		for name, set := range containers {
			out.Assigned[uid][name] = unitSet(set)
		}
	}
	for uid, entry := range s.GetPodCPUAssignments() {
		if out.Assigned[uid] == nil {
			out.Assigned[uid] = map[string]topology.CPUSet{}
		}
		out.Assigned[uid][cpus.WholePod] = unitSet(entry.CPUSet)
	}
	return out
}

// unitStore writes what has changed to the kubelet's state.
func unitStore(s state.State, before, after cpus.State) {
	for uid, containers := range before.Assigned {
		for name := range containers {
			_, ok := after.Assigned[uid][name]
			switch {
			case ok:
			case name == cpus.WholePod:
				s.DeletePod(uid)
			default:
				s.Delete(uid, name)
			}
		}
	}
	for uid, containers := range after.Assigned {
		for name, set := range containers {
			old, ok := before.Assigned[uid][name]
			switch {
			case ok && old == set:
			case name == cpus.WholePod:
				s.SetPodCPUSet(uid, unitKubeletSet(set))
			default:
				s.SetCPUSet(uid, name, unitKubeletSet(set))
			}
		}
	}
	if before.Shared != after.Shared {
		s.SetDefaultCPUSet(unitKubeletSet(after.Shared))
	}
}

// unitHints converts hints. Nil is no preference.
func unitHints(hints []device.Hint) map[string][]topologymanager.TopologyHint {
	if hints == nil {
		return nil
	}
	list := []topologymanager.TopologyHint{}
	for _, h := range hints {
		mask, err := bitmask.NewBitMask(slices.Collect(h.Nodes.Nodes())...)
		if err != nil {
			panic(err)
		}
		list = append(list, topologymanager.TopologyHint{NUMANodeAffinity: mask, Preferred: h.Preferred})
	}
	return map[string][]topologymanager.TopologyHint{string(v1.ResourceCPU): list}
}

// unitAffinity converts the NUMA nodes of a merged hint.
func unitAffinity(mask bitmask.BitMask) (nodes device.Mask) {
	if mask != nil {
		for _, n := range mask.GetBits() {
			nodes |= 1 << n
		}
	}
	return nodes
}
