// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package podtree manages the cgroups of a node's pods: kubepods, the QoS class cgroups below it, and one cgroup per pod, with
// their limits. It starts no containers; limits of container cgroups are set by the container runtime.
//
//	kubepods                     limit: node capacity minus reservations
//	kubepods/pod<uid>            Guaranteed pods
//	kubepods/burstable           CPU shares: sum of the requests of its pods
//	kubepods/burstable/pod<uid>
//	kubepods/besteffort          2 CPU shares
//	kubepods/besteffort/pod<uid>
//
//	tree, err := podtree.New(driver, nil, podtree.Options{
//		Capacity: capacity,
//		Reserved: podtree.Reserved{System: system, Kube: kube},
//	})
//	reconciler, err := lifecycle.New(runtime, observer, lifecycle.Options{Cgroups: tree})
//	...
//	err = tree.Setup(ctx)         // once, before the first pod
//	go tree.Run(ctx)              // updates class cgroups, removes orphaned pod cgroups
//
// The lifecycle.Reconciler calls the other methods per pod: [Tree.Ensure] before the sandbox and before each container start,
// [Tree.Limit] when the started containers run, and [Tree.Remove] after the pod has terminated. Pure functions compute the limits
// and steps: [Reserved], [Plan], [PlanReserved], [ForPod], [PlanOrphans] and [PlanResize].
//
// # The CPU quota of a pod
//
// A runtime starts a container from within its cgroup: runc init joins the cgroup first and then sets up namespaces and mounts.
// In a pod of 100 millicores this work (about 30 ms of CPU time) is throttled for 3 to 4 periods of 100 ms, for the sandbox and
// for each container. So [Tree.Ensure] omits a quota below 1 CPU, and [Tree.Limit] writes it when the containers run. All other
// limits are in force from the start, including the quotas of the containers. Options.QuotaFromStart writes the quota at once, as
// the kubelet does.
//
// # Concurrency
//
// All methods may be called concurrently. Calls for one pod run one after another, so a cgroup that hangs delays only its own
// pod. Each call of the driver ends after Options.Timeout. Hooks and [Pods] are called without locks held.
//
// # Errors
//
// Errors name the pod or the cgroup. [Tree.Status] lists the limits that could not be enforced. They are also reported to
// Hooks.LimitsEnforced and retried each Options.Period. An orphaned cgroup that cannot be removed is reported to
// Hooks.OrphanProcessed and retried after 10 s, doubling to 5 minutes.
//
// # Differs from the kubelet
//
// The model is Kubernetes 1.37: pkg/kubelet/cm ({node,qos,pod}_container_manager_linux.go), the resize in
// pkg/kubelet/kuberuntime/kuberuntime_manager.go, and cleanupOrphanedPodCgroups in pkg/kubelet/kubelet_pods.go. DIFFERENCES.md
// has the whole list. The differences that affect callers most:
//
//   - A CPU quota below 1 CPU is not in force while a container of the pod starts; see Options.QuotaFromStart.
//   - A memory limit of kubepods or of a reserved cgroup is not written while the usage exceeds it.
//   - CPU shares of the class cgroups are updated in the background; no pod waits for it.
//   - In a resize, adding a memory limit counts as a decrease, which is refused below the usage.
//   - Orphaned pod cgroups are removed every 10 s, not every 2 s, and with a back-off.
//
// It has no CPU, memory and topology managers, does not move daemons into reserved cgroups, and always has class cgroups
// (cgroupsPerQOS). Two agents on one host need different Roots: each takes the pods of the other for orphans.
//
// # Test kit
//
// Package cgroupstest has a cgroup tree in memory.
package podtree
