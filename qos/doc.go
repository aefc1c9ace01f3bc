// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package qos answers what a pod is worth to its node: its QoS class, the OOM score of its containers, what it
// requests and what it is limited to, and the memory protection and swap that follow. It does no I/O, keeps no state
// and writes no cgroup; package cgroups and its drivers do that.
//
// # Model
//
// Everything is a function of a pod and, where the machine matters, of a [Node]:
//
//	class := qos.StatusClass(pod)                      // Guaranteed, Burstable or BestEffort
//	adj, err := qos.OOMScoreAdj(pod, c, capacity)      // for /proc/<pid>/oom_score_adj
//	requests := qos.Requests(pod, qos.Options{})       // as the scheduler counts
//	limits := cgroups.ForPod(qos.PodResources(pod, node), cgroups.PodOptions{})
//	config.Resources, err = qos.ContainerResources(pod, c, node)
//
// The pod is the one that the node has admitted: in a resize its spec holds what is allocated. No function changes
// its pod or keeps a part of it, and every returned map belongs to the caller. So all of them may be called by
// several goroutines on one pod.
//
// [Class], [StatusClass], [OOMScoreAdj], [SwapLimit] and the functions that return a number instead of a quantity cost no
// allocation, with two exceptions: a total of memory in fractions of a binary unit, such as 1.5Gi, and amounts that no
// int64 holds.
//
// # Numbers
//
// Thousandths of a CPU and bytes are rounded up, as by resource.Quantity. Quantities of the API may exceed what an
// int64 holds, and so may their sums: [Requests] and [Limits] stay exact, a number stops at the largest int64.
//
// # Errors
//
// An error about a field of the pod is a *field.Error of apimachinery, which names field and value. Others name the
// container and the number at fault. Pods that [OOMScoreAdj] cannot score, such as those without containers, are
// errors and not panics.
//
// # Source and differences
//
// The behaviour is that of kubelet 1.37.1 with its default feature gates: pkg/apis/core/v1/helper/qos, pkg/kubelet/qos,
// pkg/kubelet/types/pod_update.go, pkg/kubelet/kuberuntime/kuberuntime_{container,sandbox}_linux.go, ResourceConfigForPod
// in pkg/kubelet/cm/helpers_linux.go, and k8s.io/component-helpers/resource. Differs from the kubelet:
//
//   - An amount or sum beyond int64 counts as the largest int64. The kubelet takes it for zero or wraps it around.
//   - The score of a container never leaves the range of its class, 3 to 999, where a negative or huge request takes
//     the kubelet's out of it.
//   - A memory capacity that is not positive, a container that is not of the pod and a sidecar without regular
//     containers are errors, where the kubelet divides by zero, goes on or panics.
//   - A hugepage resource whose name is no size, or a size that the node lacks, is an error and not skipped. A name
//     that is no size is left out of [PodResources], which returns no error.
//   - Where one container names a page size twice (2Mi and 2048Ki), the name that sorts last wins, not a random one.
//   - Resources of dynamic resource allocation are not counted; the kubelet has that behind a gate that is off.
//   - CPUs that a container has for itself are not known here: who assigns them sets CPUQuota to -1, as the kubelet does.
package qos
