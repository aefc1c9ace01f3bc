// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package qos computes the QoS class, the OOM score adjustment, the effective requests and limits, the memory protection
// and the swap of a pod. It does no I/O, keeps no state and writes no cgroup; package cgroups and its drivers do that.
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
// The pod is the one that the node has admitted: in a resize its spec has what is allocated. No function changes its pod
// or keeps a part of it, and every returned map belongs to the caller.
//
// # Concurrency
//
// Everything here is a value or a pure function, and all of them may be called by several goroutines on one pod.
//
// [Class], [StatusClass], [OOMScoreAdj], [SwapLimit] and the functions that return a number instead of a quantity make no
// allocation, with two exceptions: a total of memory in fractions of a binary unit, such as 1.5Gi, and amounts that no
// int64 can represent.
//
// # Numbers
//
// Millicores and bytes are rounded up, as by resource.Quantity. Quantities of the API may exceed an int64, and so may
// their sums: [Requests] and [Limits] stay exact, a number stops at the largest int64.
//
// # Errors
//
// An error about a field of the pod is a *field.Error of apimachinery, which names field and value. Others name the
// container and the number at fault. Pods that [OOMScoreAdj] cannot score, such as those without containers, are
// errors and not panics.
//
// # Differs from the kubelet
//
// The behaviour is that of kubelet 1.37.1 with its default feature gates: pkg/apis/core/v1/helper/qos, pkg/kubelet/qos,
// pkg/kubelet/types/pod_update.go, pkg/kubelet/kuberuntime/kuberuntime_{container,sandbox}_linux.go, ResourceConfigForPod
// in pkg/kubelet/cm/helpers_linux.go, and k8s.io/component-helpers/resource. DIFFERENCES.md has the whole list. What a
// user has to know:
//
//   - A memory capacity that is not positive, and a container that is not of the pod, are errors of [OOMScoreAdj].
//   - A hugepage resource whose name is no size, or a size that the node lacks, is an error and not skipped.
//   - Resources of dynamic resource allocation are not counted; the kubelet has that behind a gate that is off.
//   - CPUs that a container has for itself are not known here: who assigns them sets CPUQuota to -1, as the kubelet does.
//
// # Test kit
//
// There is none: everything here is a pure function.
package qos
