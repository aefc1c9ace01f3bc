// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package podspec converts a corev1.Pod to the sandbox and container configs of a [cri.Runtime]. It starts nothing, keeps no
// state and, except for [ResolveReferences], does no I/O: equal input gives an equal config, byte for byte.
//
//	podapi.Default(pod)
//	errs := append(podapi.Validate(pod), podapi.Unsupported(pod)...)
//	...
//	sandbox, err := podspec.Sandbox(pod, 0, options)
//	c := &pod.Spec.Containers[0]
//	refs, err := podspec.ResolveReferences(ctx, pod, c, objects, volumes)
//	launch := podspec.Launch{PodIPs: ips, References: refs, Volumes: volumes}
//	container, err := podspec.Container(pod, c, launch, options)
//
// # Model
//
// [Options] has the settings of the node, which apply to all pods. [Launch] has the data of one container that is about to be
// created: an init, regular or ephemeral container. [ResolveReferences] reads the config maps, secrets and services that its
// environment refers to.
//
// The caller creates files and directories, and passes their host paths: the hosts file with the content of [HostsFile], the
// termination message file, volumes, and subpaths of volumes. A missing path is an error if the pod requires it.
//
// The resources of a container are its CPU, memory and huge pages. If Options.Node is set, they include settings that depend on
// the QoS class or the cgroup version: OOM score adjustment, swap, memory.min, memory.high and memory.oom.group.
//
// # Concurrency
//
// All functions may be called concurrently, if no goroutine writes to the pod. They call the functions in Options from the
// calling goroutine.
//
// # Errors
//
// Every error is a *field.Error with the field and value of the pod. Errors of ResolveReferences name the field and wrap the
// cause.
//
// # Differs from the kubelet
//
// The behavior is that of kubelet 1.37.1 with its default feature gates (pkg/kubelet/kuberuntime, pkg/kubelet/network/dns,
// pkg/kubelet/kubelet_pods.go, pkg/securitycontext). DIFFERENCES.md has all differences. A user has to know these:
//
//   - With an empty Options.LogRoot no logs are kept.
//   - Without Options.ResolvConf the runtime chooses the resolv.conf; the kubelet reads that of the host.
//   - Host aliases are an error without a hosts file.
//   - Launch.SubPath creates and secures subpaths of volumes.
//   - If the runtime does not report the user of an image, it is not assumed to be root: no user is set, and runAsNonRoot without runAsUser is an error.
//
// Test kit: none is needed, because all functions but ResolveReferences are pure.
package podspec
