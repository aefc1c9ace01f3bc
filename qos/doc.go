// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package qos computes the QoS class, the OOM score adjustment, the effective requests and limits, the memory protection and the
// swap limit of a pod. It does no I/O and writes no cgroup: package cgroups and its drivers do.
//
//	class := qos.StatusClass(pod)                 // Guaranteed, Burstable or BestEffort
//	adj, err := qos.OOMScoreAdj(pod, c, capacity) // for /proc/<pid>/oom_score_adj of container c
//	requests := qos.Requests(pod, qos.Options{})  // computed as by the scheduler
//
//	// The limits of the pod's cgroup, and the resources of a container for the CRI.
//	limits := cgroups.ForPod(qos.PodResources(pod, node), cgroups.PodOptions{})
//	config.Resources, err = qos.ContainerResources(pod, c, node)
//
// Each function takes a pod and, if the result depends on the machine, a [Node]. The spec of the pod must contain the resources
// that the node has allocated, also during an in-place resize. No function changes the pod or keeps a part of it. The caller owns
// every returned map.
//
// # Concurrency
//
// All functions are pure. Several goroutines may call them with the same pod.
//
// [Class], [StatusClass], [OOMScoreAdj], [SwapLimit] and the functions that return a number do not allocate memory. There are two
// exceptions: memory amounts with a fraction of a binary unit, for example 1.5Gi, and amounts beyond an int64.
//
// # Rounding
//
// Millicores and bytes are rounded up, as by resource.Quantity. [Requests] and [Limits] are exact. A function that returns a
// number returns the largest int64 for a larger sum.
//
// # Errors
//
// An error about a field of the pod is a *field.Error of apimachinery with the field and its value. Other errors name the
// container and the invalid number. [OOMScoreAdj] returns an error where the kubelet would panic, for example for a pod without
// containers.
//
// # Differs from the kubelet
//
// The behaviour is that of kubelet 1.37.1 with its default feature gates: pkg/apis/core/v1/helper/qos, pkg/kubelet/qos,
// pkg/kubelet/types/pod_update.go, pkg/kubelet/kuberuntime/kuberuntime_{container,sandbox}_linux.go, ResourceConfigForPod in
// pkg/kubelet/cm/helpers_linux.go, and k8s.io/component-helpers/resource. DIFFERENCES.md has the whole list. The differences that
// affect callers most:
//
//   - [OOMScoreAdj] returns an error for a memory capacity of zero or less, and for a container that is not in the pod.
//   - A hugepage resource with an invalid size, or with a size that the node does not have, is an error. The kubelet skips it.
//   - Resources of dynamic resource allocation are not counted. The kubelet counts them only with a feature gate that is off.
//
// # Test kit
//
// There is none, because all functions are pure.
package qos
