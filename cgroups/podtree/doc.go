// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package podtree keeps the cgroups of a node's pods: kubepods, the classes below it, one cgroup for each pod, and the
// limits of each. It starts no containers, and what a container may use is the runtime's to set.
//
// # Model
//
//	kubepods                     all pods; what the node has, less what is reserved
//	kubepods/pod<uid>            Guaranteed pods
//	kubepods/burstable           CPU shares: the sum of the requests of its pods
//	kubepods/burstable/pod<uid>
//	kubepods/besteffort          2 CPU shares
//	kubepods/besteffort/pod<uid>
//
// What to write is decided by pure functions: [Reserved] has the arithmetic of a node, [Plan] and [PlanReserved] say
// what the upper cgroups get, [ForPod] what a pod's, [PlanOrphans] which cgroups are those of orphaned pods, and [PlanResize]
// in which order a running pod is resized. A [Tree] does it.
//
//	tree, err := podtree.New(driver, nil, podtree.Options{
//		Capacity: capacity,
//		Reserved: podtree.Reserved{System: system, Kube: kube},
//	})
//	reconciler, err := lifecycle.New(runtime, observer, lifecycle.Options{Cgroups: tree}) // whose pods the tree follows
//	...
//	err = tree.Setup(ctx)         // once, before any pod is started
//	go tree.Run(ctx)              // keeps the classes in step, removes orphans
//
// The reconciler calls the rest:
//
//	err = tree.Ensure(ctx, pod)   // before the sandbox of a pod, and before a later start of a container
//	err = tree.Limit(ctx, pod)    // when the containers of that start run
//	err = tree.Remove(ctx, uid)   // when nothing of it is left
//
// The writer is a [cgroups.CgroupWriter] and [cgroups.Lister]. Where it is a [cgroups.Reader] as well, memory is not
// limited below what is in use, and pods can be resized. Which numbers cpu.weight gets is the writer's choice, the same
// at every level.
//
// # The CPU quota of a pod
//
// A runtime starts a container from within: runc's init joins the cgroup first, and then sets up namespaces and mounts.
// In a pod of 100 millicores that work, some 30 ms of CPU time, is held back for 3 to 4 periods of 100 ms, in the
// sandbox and again in each container. So [Tree.Ensure] leaves a quota of less than 1 CPU out, and [Tree.Limit]
// writes it when the containers run; a later start of a container lifts it for as long as that takes. Everything else
// is in force from the beginning: memory, PIDs, huge pages, CPU shares, and the quotas of the containers, which the
// runtime keeps. runc sets those when most of its init is over: measured with cgroupfs, no start of a container of 20
// millicores was held back on cgroup v1, and on v2 in User Mode Linux, where the same work takes fifteen times as long,
// 22 of 220 ms were, which is 11 periods. While the quota is lifted the containers can use no more than their own
// limits together, which is the same, unless the pod has a limit as a whole and containers without one. A runtime with
// a kernel of its own for each pod has its machine in the pod's cgroup and the containers inside: it may use more than
// its quota for the time of a start, and its containers may not. Pods without a quota (BestEffort, those in which a
// container has no limit, all of a node with NoCPUQuota) have nothing to lift.
//
// Options.QuotaFromStart is the kubelet's way: the quota is written with the rest.
//
// # Concurrency
//
// All methods may be called from anywhere. Work on one pod happens one after the other and on different pods at the
// same time, so that a cgroup that hangs delays its own pod alone; every call to the writer ends after
// Options.Timeout. The upper cgroups are written by Setup and by the goroutine of Run, which no pod waits for. Hooks
// and [Pods] are called with no lock held.
//
// # Errors
//
// Errors name the pod or the cgroup. What could not be enforced is in [Tree.Status] with its reason, is told to
// Hooks.LimitsEnforced, and is tried again each Options.Period. An orphan that cannot be removed is in [Tree.Status], is told
// to Hooks.OrphanProcessed, and is tried again after 10 s, doubling to 5 minutes.
//
// # Differs from the kubelet
//
// The model is pkg/kubelet/cm (node_container_manager_linux.go, qos_container_manager_linux.go and
// pod_container_manager_linux.go), the resize in pkg/kubelet/kuberuntime/kuberuntime_manager.go and
// cleanupOrphanedPodCgroups in pkg/kubelet/kubelet_pods.go of Kubernetes 1.37. DIFFERENCES.md has the whole list. What a
// user has to know:
//
//   - A small CPU quota is in force only while no container of the pod is being started; see Options.QuotaFromStart.
//   - A memory limit of kubepods or of a reserved cgroup is not written while more is in use; [Tree.Status] says so.
//   - Shares of the classes follow the pods in the background, and no pod waits for that.
//   - In a resize no limit is more than any limit, so that to add one is to shrink and is refused below what is in use.
//   - Orphaned pods' cgroups are removed every 10 s, not every 2 s, and with a back-off.
//
// Not here: CPU, memory and topology managers, so no pod has CPUs of its own; moving daemons into reserved cgroups; a
// tree without classes (cgroupsPerQOS false).
//
// # When not to use it
//
// Where another agent keeps kubepods: two agents take each other's pods for orphans, unless each has a Root of its own.
//
// # Test kit
//
// Package cgroupstest has a tree in memory.
package podtree
