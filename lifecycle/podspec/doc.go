// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package podspec translates a corev1.Pod into the sandbox and container configs that a [cri.Runtime] takes, and
// says which pods it cannot translate. It does no I/O, keeps no state and starts nothing: the same pod, options and
// inputs always give the same config, byte for byte.
//
// # Model
//
// A pod goes through four functions before anything runs. [Default] fills in what the API server would have filled
// in, [Validate] finds what the API server would have refused, [Unsupported] finds what is valid but cannot be run
// by this version, and [Sandbox] and [Container] build the configs:
//
//	podspec.Default(pod)
//	errs := append(podspec.Validate(pod), podspec.Unsupported(pod)...)
//	...
//	sandbox, err := podspec.Sandbox(pod, 0, options)
//	container, err := podspec.Container(pod, &pod.Spec.Containers[0], podspec.Launch{PodIPs: ips}, options)
//
// [Options] holds what is the same for every pod of a node, [Launch] what is known only when one container is about
// to be created. What Kubernetes objects other than the pod would add (volumes, config maps, secrets) is refused by
// [Unsupported] and never ignored. The variables of services can be handed in through Launch.Env.
//
// The resources of a container are what its pod alone decides: CPU, memory and huge pages. What depends on the QoS
// class or on the cgroup version of the node (OOM score, swap, memory.min and memory.high, memory.oom.group) belongs
// to the caller, who may change the returned config before using it.
//
// # Errors
//
// Every error is a *field.Error, which names the field of the pod that is at fault and its value.
//
// # Source and differences
//
// The behaviour is that of kubelet 1.37.1 with its default feature gates (pkg/kubelet/kuberuntime, pkg/kubelet/network/dns,
// pkg/kubelet/kubelet_pods.go, pkg/securitycontext; defaults and validation of pkg/apis/core). Differs from the kubelet:
//
//   - Environment variables keep the order of the pod, and DNS options the order in which they first appear; the
//     kubelet takes both from a map, in random order.
//   - A sandbox gets namespace options even where the pod has no security context.
//   - lifecycle.stopSignal is honoured; the kubelet has it behind a gate that is off.
//   - Without a resolv.conf in Options the host's is left to the runtime, where the kubelet would read it.
//   - An image whose user the runtime does not tell is not taken for root: no user is asked for, and runAsNonRoot
//     without runAsUser is an error.
//   - A UID has to be usable as a file name, as the log directory is made of it.
//   - The name of a hugepage resource that is not a size is an error, not skipped.
package podspec
