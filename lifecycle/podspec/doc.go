// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package podspec translates a corev1.Pod into the sandbox and container configs that a [cri.Runtime] takes. It keeps no
// state, starts nothing and, but for [ResolveReferences], does no I/O: the same pod, options and inputs always give the same config, byte for
// byte.
//
// # Model
//
// A pod has been through package podapi, which sets defaults and refuses what cannot be translated. [Sandbox] and
// [Container] build the configs:
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
// [Options] holds what is the same for every pod of a node, [Launch] what is known only when one container is about to
// be created: an init container, a regular or an ephemeral one. [ResolveReferences] reads the objects that its environment
// refers to.
//
// Files are made by the caller. [HostsFile] returns the content of a hosts file, and the volumes of a pod, the file for a
// container's termination message and paths within volumes are given as host paths. What is missing is an error if the
// pod cannot do without it, and never ignored.
//
// The resources of a container are what its pod alone decides: CPU, memory and huge pages. What depends on the QoS
// class or on the cgroup version of the node (OOM score adjustment, swap, memory.min and memory.high, memory.oom.group)
// is there where [Options].Node is; a caller may change the returned config before using it.
//
// It belongs here what becomes a field of a config. When a config is used, and what becomes of it, does not.
//
// # Concurrency
//
// The functions may be called at the same time, as long as nobody writes to the pod meanwhile. The funcs of Options are
// called from those goroutines.
//
// # Errors
//
// Every error is a *field.Error, which names the field of the pod that is at fault and its value. Those of ResolveReferences name the field and
// wrap the cause.
//
// # Differs from the kubelet
//
// The behaviour is that of kubelet 1.37.1 with its default feature gates (pkg/kubelet/kuberuntime,
// pkg/kubelet/network/dns, pkg/kubelet/kubelet_pods.go, pkg/securitycontext). What a user must act on, with the rest in
// DIFFERENCES.md:
//
//   - An empty Options.LogRoot keeps no logs: nothing is written where nobody asked for it.
//   - Without a resolv.conf in Options the host's is left to the runtime, where the kubelet would read it.
//   - Host aliases are an error where nobody provides a hosts file.
//   - Paths within volumes are made and kept safe by Launch.SubPath, not by the package.
//   - An image whose user the runtime does not tell is not taken for root: no user is asked for, and runAsNonRoot without
//     runAsUser is an error.
//
// Test kit: none is needed, as all of it is pure.
package podspec
