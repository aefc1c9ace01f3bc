// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package cpus decides which containers have exclusive CPUs, as the static policy of the kubelet's CPU manager does, and keeps their assignments. It
// creates no container: the agent starts each container with the CPUs of [Allocator.CPUs].
//
//	policy, err := cpus.NewPolicy(machine, cpus.Config{Policy: cpus.PolicyStatic, ReservedMillis: 1000})
//	if err != nil {
//		return err // the kubelet's text
//	}
//	allocator, err := cpus.NewAllocator(policy, cpus.AllocatorOptions{Record: "/var/lib/agent/cpus"})
//	if err != nil {
//		return err
//	}
//	pod := &cpus.Pod{UID: uid, Guaranteed: true, Containers: []cpus.Container{{Name: "app", Millis: 2000}}}
//	if err := allocator.Reserve(pod, nil); err != nil { // nil: CPUs of any NUMA nodes
//		return err // start no container; the pod must fail if the error is a *device.Refusal
//	}
//	set, exclusive := allocator.CPUs(uid, "app")
//
// Reserve is for agents that align no other resource with the CPUs. To merge the hints of CPUs, devices and memory, use [Allocator.Begin]. For other
// containers to leave the CPUs before the container starts, use a [Writer].
//
// # Model
//
// Exclusive CPUs are CPUs that no container of another pod may use. A container needs exclusive CPUs if the policy is static, its pod is Guaranteed, and
// its CPU request is a whole number of CPUs above zero. It has them for itself, but later containers of the pod may reuse the CPUs of an init container.
// All other containers run in the shared pool of the node. After a change to the policy none, running containers keep their exclusive CPUs.
//
// In a pod with pod-level resources, a container needs exclusive CPUs only if Gates.PodLevel and Container.Guaranteed are true as well. If the topology
// manager has the scope "pod", such a pod has exclusive CPUs as a whole, which its containers divide: some have a part for themselves, the remaining
// containers share a part. See [Policy.ReservePod] and [State.SharesPod].
//
// The methods of a [Policy] are pure functions of a [State]. They compute hints for the topology manager, and the state after a reservation, a release and
// a restart of the agent. An [Allocator] keeps the state in memory and writes each change to a record before the call returns. A [Reservation] computes
// the hints of one container after the other, to be merged with those of other resources, and changes the state in Commit. A [Writer] writes cpuset.cpus
// of running containers after a change: until [Writer.Settle] returns, containers of the shared pool may still run on CPUs that have become exclusive.
// [Layout.Take] is the choice of CPUs alone.
//
// # Concurrency
//
// A [Layout] and a Policy are immutable, a State is a value. Methods of an Allocator may be called concurrently. Only [Writer.Run] starts goroutines.
//
// # Errors
//
// NewPolicy returns the errors with which a kubelet does not start. A reservation returns a [*device.Refusal] with the kubelet's reason and message if a
// container or pod cannot have its CPUs. [Policy.Explain] then returns how many CPUs of each NUMA node are free.
//
// # Differs from the kubelet
//
//   - Kubelet: after some changes of the policy, its options or the machine, it does not start until its file is deleted. Policy: running containers
//     keep their CPUs, and a [Notice] reports them. Switch: Kubelet.RefuseChanged.
//   - Kubelet: after a restart, it may refuse a running pod. Policy: it never refuses a running pod. Switch: Kubelet.RefuseRunning.
//   - Kubelet: with strict-cpu-reservation, the shared pool may become empty. Policy: the shared pool is never empty. Switch: Kubelet.EmptyPool.
//   - On a machine with unequal cores, unequal sockets or more than four NUMA nodes, the kubelet may take other CPUs than [Layout.Take]; see
//     DIFFERENCES.md.
//
// Test kit: [topology.Parse], which returns a machine from a line of text.
package cpus
