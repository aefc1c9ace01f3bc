// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package cpus decides which containers have exclusive CPUs, as the static policy of the kubelet's CPU manager does, and keeps their assignments. It
// creates no container: the agent starts each container with the CPUs of [Allocator.CPUs].
//
//	policy, err := cpus.NewPolicy(machine, cpus.Config{Policy: cpus.PolicyStatic, ReservedMillis: 1000})
//	if err != nil {
//		return err // the kubelet's text
//	}
//	agent, err := cpus.NewAllocator(policy, cpus.AllocatorOptions{Record: "/var/lib/agent/cpus"})
//	if err != nil {
//		return err
//	}
//	pod := &cpus.Pod{UID: uid, Guaranteed: true, Containers: []cpus.Container{{Name: "app", Millis: 2000}}}
//	if err := agent.Reserve(pod, nil); err != nil {
//		return err // a *device.Refusal: the pod fails
//	}
//	set, exclusive := agent.CPUs(uid, "app")
//
// # Model
//
// A [Policy] is a pure function of a [State]: hints for the topology manager, the CPUs of a container, the state after a release, and the state with which
// an agent continues after a restart. An [Allocator] keeps the state in memory and in a record, and writes it before a pod gets its CPUs. A [Reservation]
// computes the hints of one container after the other, to be merged with those of other resources, and changes the state only at its end. A [Writer] writes
// cpuset.cpus of running containers when the shared pool changes. [Layout.Take] is the choice of CPUs alone.
//
// With Gates.PodLevel and the topology scope "pod", a pod with pod-level resources has CPUs as a whole, of which its containers have parts; see
// [Policy.ReservePod].
//
// # Concurrency
//
// A [Layout] and a Policy are immutable, a State is a value. Methods of an Allocator may be called concurrently. Only [Writer.Run] starts goroutines.
//
// # Errors
//
// NewPolicy returns the errors with which a kubelet does not start. A container that cannot have its CPUs is a [device.Refusal] with the kubelet's reason
// and message. [Policy.Explain] names the NUMA node that lacks CPUs.
//
// # Differences from the kubelet
//
// No restart needs a file deleted by hand: running containers keep their CPUs when the policy, an option or the machine has changed, and [Notice] names
// them. No restart refuses a running pod. The shared pool is never empty. [Kubelet] switches these off. On machines whose cores and sockets have equal sizes
// and up to four NUMA nodes, the CPUs are those that the kubelet takes; DIFFERENCES.md lists the differences on other machines.
//
// Test kit: [topology.Parse], which returns a machine from a line of text.
package cpus
