// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package numa decides from which NUMA nodes a container has its memory and huge pages, as the static policy of the kubelet's memory manager does, and
// records it. The caller merges the hints of memory, CPUs and devices with a [device.Merger], and the container runtime writes cpuset.mems.
//
//	policy, err := numa.NewPolicy(machine, numa.Config{Policy: numa.PolicyStatic, ReservedMemory: reserved, SystemReserved: system})
//	memory, err := numa.NewAllocator(policy, numa.AllocatorOptions{Record: "/var/lib/agent/memory"})
//	merger, err := device.NewMerger(device.Restricted, nil, []device.NUMANode{{ID: 0}, {ID: 1}})
//	...
//	requests, err := numa.ConvertRequests(spec.Resources.Requests) // of container app
//	pod := &numa.Pod{UID: uid, Guaranteed: true, Containers: []numa.Container{{Name: "app", Requests: requests}}}
//	r, err := memory.Begin(pod)
//	...
//	for i := range pod.Containers {
//		best, admit := merger.Merge(slices.Concat(r.Hints(i), otherHints[i])) // those of the CPUs and devices of container i
//		if !admit {
//			r.Undo(0)
//			return errors.New("Resources cannot be allocated with Topology locality")
//		}
//		if err := r.Take(best); err != nil {
//			r.Undo(0)
//			return err // a *numa.Refusal: the pod fails
//		}
//	}
//	err = r.Commit()                                           // before the first container starts
//	mems := policy.NodesOf(memory.State(), uid, "app").List() // for cpuset.mems; empty: all NUMA nodes
//	...
//	err = memory.Release(uid) // after the pod has terminated
//
// # Model
//
// A container with memory of its own has a fixed set of NUMA nodes, for its cpuset.mems, and the bytes that it requests are subtracted from the free
// memory of these nodes. A block is an amount of one type of memory that such a container has on its set of nodes. All other containers may use all NUMA
// nodes. The package only counts bytes: the kernel may place memory of other processes on the nodes.
//
// The sets of nodes of two containers with memory of their own are equal or disjoint: a NUMA node serves containers that have memory on this node alone, or
// the node belongs to a group of several nodes, which serves containers with exactly this set. [Policy.Reserve] has one exception.
//
// With Config.PodLevel and the topology scope "pod", a pod with pod-level resources has memory as a whole, of which its containers have parts; see
// [Policy.ReservePod].
//
// # Differs from the kubelet
//
//   - Kubelet: it frees the memory of an init container when the next container starts, and may refuse the pod after a restart. Policy: the init container
//     keeps its NUMA nodes until the pod has terminated. Switch: Kubelet.FreeInit.
//   - Kubelet: after a change of the policy, the reserved memory or the machine, it does not start. Policy: it starts. Containers keep their memory, unless
//     the policy has changed. Switch: Kubelet.RefuseChanged.
//   - Kubelet: it frees the memory of a terminated pod when it admits the next pod. Policy: [Policy.Release] frees it. Switch: none.
//   - Kubelet: it panics for a huge page size that the machine lacks. Policy: it refuses the pod. Switch: none.
//   - Kubelet: it tries all sets of NUMA nodes, and does not return on large machines. Policy: from eleven unused NUMA nodes on, the list of hints is
//     limited. Switch: none.
//
// DIFFERENCES.md lists all differences. Test kit: [topology.Parse].
package numa
