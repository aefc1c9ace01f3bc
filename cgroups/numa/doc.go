// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package numa decides from which NUMA nodes a container has its memory and huge pages, as the static policy of the kubelet's memory manager does, and
// records it. It writes no cpuset, and merges no hints of several resources: the container runtime and [device.Merger] do.
//
//	policy, err := numa.NewPolicy(machine, numa.Config{Policy: numa.PolicyStatic, ReservedMemory: reserved, SystemReserved: system})
//	...
//	memory, err := numa.NewAllocator(policy, numa.AllocatorOptions{Record: "/var/lib/agent/memory"})
//	...
//	merger, err := device.NewMerger(device.Restricted, nil, numaNodes)
//	...
//	requests, err := numa.ConvertRequests(spec.Resources.Requests)
//	...
//	pod := &numa.Pod{UID: uid, Guaranteed: true, Containers: []numa.Container{{Name: "app", Requests: requests}}}
//	r, err := memory.Begin(pod)
//	...
//	for i := range pod.Containers {
//		best, admit := merger.Merge(slices.Concat(r.Hints(i), deviceHints[i]))
//		if !admit {
//			r.Undo(0)
//			return errors.New("Resources cannot be allocated with Topology locality")
//		}
//		if err := r.Take(best); err != nil {
//			r.Undo(0)
//			return err // a *numa.Refusal: the pod fails
//		}
//	}
//	err = r.Commit()                            // before the first container starts
//	nodes := memory.State().NodesOf(uid, "app") // cpuset.mems; empty: all NUMA nodes
//	...
//	err = memory.Release(uid) // after the pod has terminated
//
// # Model
//
// A container with memory of its own has a fixed set of NUMA nodes, for its cpuset.mems, and the bytes that it requests are subtracted from the free memory
// of these nodes. All other containers may use all NUMA nodes. The package only counts bytes: the kernel may place memory of other processes on the nodes.
//
// A container with memory on one NUMA node shares this node only with such containers. The nodes of a container on several NUMA nodes are a group: only
// containers with exactly these nodes use them, so that groups do not overlap. [Policy.Reserve] names the exception.
//
// With Config.PodLevel and the topology scope "pod", a pod with pod-level resources has memory as a whole, of which its containers have parts; see
// [Policy.ReservePod].
//
// # Concurrency
//
// A [Policy] is immutable, and a [State] is a value. The methods of an [Allocator] may be called concurrently. Functions that write a file must not be
// called concurrently for the same file.
//
// # Errors
//
// If a pod must fail, the error is a [*Refusal] of this package, not of package device, with the kubelet's message. [Refusal.Explain] adds which NUMA node
// lacks how much. [NewPolicy], [Policy.Restore] and [ReadCheckpoint] return the kubelet's texts where a kubelet would not start.
//
// # Differs from the kubelet
//
//   - A restart refuses no running pod: init containers keep their NUMA nodes until the pod has terminated, and a changed machine is no error.
//   - Memory is freed when the pod has terminated, not when the next pod is admitted.
//   - A huge page size that the machine lacks refuses the pod; the kubelet panics.
//   - From eleven unused NUMA nodes on, the list of hints is limited; the kubelet tries all sets, and does not return.
//
// DIFFERENCES.md lists all differences; [Kubelet] switches two of them off. Test kit: [topology.Parse].
package numa
