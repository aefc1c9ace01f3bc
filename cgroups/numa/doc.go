// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package numa decides from which NUMA nodes a container has its memory and huge pages, as the static policy of the kubelet's memory manager does, and
// records it. It writes no cpuset, and merges no hints of several resources, which [device.Policy] does.
//
//	machine, err := topology.Read(os.DirFS("/"))
//	if err != nil {
//		return err
//	}
//	policy, err := numa.NewPolicy(machine, numa.Config{Policy: numa.PolicyStatic, ReservedMemory: reserved, SystemReserved: system})
//	if err != nil {
//		return err
//	}
//	var state numa.State // of a node without containers
//	for i := range pod.Containers {
//		hints := policy.Hints(state, pod, i) // for the merge, with those of devices and CPUs
//		best, admit := device.Restricted.Merge(hints, 1<<len(machine.Nodes)-1)
//		if !admit {
//			return errors.New("Resources cannot be allocated with Topology locality")
//		}
//		if state, err = policy.Reserve(state, pod, i, best); err != nil {
//			return err // the caller keeps the state that it had before the pod
//		}
//	}
//	err = numa.WriteRecord(path, policy.Save(state))
//
// An [Allocator] does this for the pods of a node: it keeps the state and its record.
//
// A node is used by containers of one node, or by containers of one group of nodes, never by both: see [Policy.Hints].
//
// With Config.PodLevel and the topology scope "pod", a pod with pod-level resources has memory as a whole, of which its containers have parts; see
// [Policy.ReservePod].
//
// # Concurrency
//
// A [Policy] is immutable, and a [State] is a value. The methods of an [Allocator] may be called concurrently. Functions that write a file must not be called concurrently for the same file.
//
// # Errors
//
// A pod that must fail has a [*Refusal] with the kubelet's message; [Refusal.Explain] adds which NUMA node lacks how much. [NewPolicy], [Policy.Restore]
// and [ReadCheckpoint] have the kubelet's texts where a kubelet would not start.
//
// # Differs from the kubelet
//
//   - A restart refuses no running pod: init containers keep their memory until the pod is over, and a changed machine is no error.
//   - Memory is freed when the pod is over, not when the next pod is admitted.
//   - A huge page size that the machine lacks refuses the pod; the kubelet panics.
//   - From eleven unused NUMA nodes on, the list of hints is limited; the kubelet tries all sets, and does not return.
//
// DIFFERENCES.md lists all differences; [Kubelet] switches two of them off.
//
// Test kit: [topology.Parse], which returns a machine from a line of text.
package numa
