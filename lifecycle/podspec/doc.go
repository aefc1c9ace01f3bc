// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package podspec translates a corev1.Pod into the sandbox and container configs that a [cri.Runtime] takes, and
// says which pods it cannot translate. It keeps no state and starts nothing, and but for [Resolve] it does no I/O: the
// same pod, options and inputs always give the same config, byte for byte.
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
//	c := &pod.Spec.Containers[0]
//	refs, err := podspec.Resolve(ctx, pod, c, objects, volumes)
//	launch := podspec.Launch{PodIPs: ips, References: refs, Volumes: volumes}
//	container, err := podspec.Container(pod, c, launch, options)
//
// [Options] holds what is the same for every pod of a node, [Launch] what is known only when one container is about to
// be created: an init container, a regular or an ephemeral one. Config maps, secrets and services come from [Objects],
// of which [Resolve] takes what the container refers to; a pod that refers to none needs neither.
//
// Files are made by the caller. [HostsFile] says what is in a hosts file, and the volumes of a pod, the file for a
// container's last words and paths within volumes are given as host paths. What is missing is an error if the pod
// cannot do without it, and never ignored. [ForbiddenSysctls] is for those who decide which pods may run on a node at
// all.
//
// The resources of a container are what its pod alone decides: CPU, memory and huge pages. What depends on the QoS
// class or on the cgroup version of the node (OOM score, swap, memory.min and memory.high, memory.oom.group) belongs
// to the caller, who may change the returned config before using it.
//
// # Errors
//
// Every error is a *field.Error, which names the field of the pod that is at fault and its value, but for those of
// [Resolve], which name the field and wrap the cause.
//
// # Source and differences
//
// The behaviour is that of kubelet 1.37.1 with its default feature gates (pkg/kubelet/kuberuntime,
// pkg/kubelet/network/dns, pkg/kubelet/kubelet_pods.go, pkg/securitycontext; defaults and validation of pkg/apis/core).
// Differs from the kubelet:
//
//   - Environment variables keep the order of the pod, those of config maps, secrets and services the order of names,
//     and DNS options the order in which they first appear; the kubelet takes them from maps, in random order.
//   - A sandbox gets namespace options even where the pod has no security context.
//   - lifecycle.stopSignal is honoured; the kubelet has it behind a gate that is off.
//   - Without a resolv.conf in Options the host's is left to the runtime, where the kubelet would read it.
//   - An image whose user the runtime does not tell is not taken for root: no user is asked for, and runAsNonRoot
//     without runAsUser is an error.
//   - A UID has to be usable as a file name, as the log directory is made of it.
//   - No list or map of a pod has more than [MaxEntries] entries and no key more than 1 KiB, a pod asks for at most 100
//     different resources, and at most 100 errors are returned, with what they quote cut. The API server bounds none of
//     this but by the size of a request.
//   - The page size in the name of a resource has an exponent of at most two digits; to parse a larger one takes
//     minutes.
//   - A hook is at most [MaxHook] large, the labels of a pod [MaxSandboxLabels], and what the manifest adds to the
//     runtime's list of containers [MaxListed] per pod, so that the containers of 110 pods fit in an answer of 16 MiB.
//     The annotations of a pod may have 256 KiB, as in the API server: more than 60 pods with that many do not fit.
//   - The name of a hugepage resource that is not a size is an error, not skipped.
//   - Optional references are left out where there are no objects at all; the kubelet without an API server refuses
//     them.
//   - What a container is given is bounded while it is put together: [MaxArgument] for a variable or an argument,
//     [MaxArguments] for all, and 4 KiB for a path in a volume. Linux would start no process with more; the kubelet
//     puts it together however large it gets, and fails in the runtime.
//   - A file of variables is at most 1 MiB, those of one container are 4 MiB together, and a link in it to an absolute path is refused, not followed in the
//     volume.
//   - Host aliases are an error where nobody provides a hosts file.
//   - Paths within volumes are made and kept safe by Launch.SubPath, not by the package.
//   - Which sysctls are safe does not depend on the kernel; an old one may have some of them for the whole host.
//   - An image whose name is not valid is pulled by the rules of any other name.
package podspec
