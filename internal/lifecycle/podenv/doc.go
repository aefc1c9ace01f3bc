// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package podenv makes the environment of a container: its variables, those of config maps, secrets, files and services,
// the downward API, and the references to variables in its command and arguments. What else a container is given is in
// package podspec, and whether the fields are valid in package podapi.
//
// # Model
//
// [Resolve] collects what a container refers to, from [Objects] and from files in the volumes of its pod. [New] makes the
// variables of it, and does no I/O: the same pod and [Sources] always give the same environment, byte for byte.
//
//	refs, err := podenv.Resolve(ctx, pod, container, objects, volumes)
//	...
//	env, err := podenv.New(pod, container, podenv.Sources{References: refs, Volumes: volumes, PodIPs: ips})
//	...
//	command, err := env.Expand(container.Command, path)
//
// What does not exist is an error if the container cannot do without it, and never ignored. A pod that refers to nothing
// needs no Objects. Package objects has some in memory and in a directory, which are for tests, too.
//
// # Concurrency
//
// The functions may be called at the same time, as long as nobody writes to the pod meanwhile. An [Environment] is for one
// goroutine.
//
// # Errors
//
// Those of New and Expand are *field.Error and name the field of the pod that is at fault and its value. Those of Resolve
// name the field and wrap the cause.
//
// # Differs from the kubelet
//
// The behaviour is that of pkg/kubelet/kubelet_pods.go at 1.37.1 with its default feature gates. What a user must act on,
// with the rest in DIFFERENCES.md:
//
//   - What a container is given is bounded: [MaxArgument] for a variable or an argument, [MaxArguments] for all. Linux would
//     start no process with more.
//   - A file of variables is at most 1 MiB, and those of one container 4 MiB together.
//   - A link to an absolute path in a volume is refused where a file of variables is read.
//   - Optional references are left out where there are no Objects at all.
//
// Test kit: package objects has objects in memory; the rest is pure.
package podenv
