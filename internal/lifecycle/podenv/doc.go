// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package podenv computes the environment of a container: its variables, including those from config maps, secrets, files,
// services and the downward API, and the expansion of its command and arguments. Package podapi validates the fields, and package
// podspec builds the remaining container config.
//
// # Model
//
// [Resolve] reads the objects and files that a container refers to. [New] computes the variables from them without I/O and is
// deterministic.
//
//	refs, err := podenv.Resolve(ctx, pod, container, objects, volumes)
//	...
//	env, err := podenv.New(pod, container, podenv.Sources{References: refs, Volumes: volumes, PodIPs: ips})
//	...
//	command, err := env.Expand(container.Command, path)
//
// A missing object is an error unless the reference is optional. A pod without references needs no [Objects]. Package objects has
// implementations in memory and from a directory.
//
// # Concurrency
//
// The functions are safe for concurrent use while no caller modifies the pod. An [Environment] must be used by one goroutine.
//
// # Errors
//
// New and Expand return a *field.Error with the invalid field and its value. Errors of Resolve name the field and wrap the cause.
//
// # Differs from the kubelet
//
// The model is pkg/kubelet/kubelet_pods.go at 1.37.1 with default feature gates. Users must know; DIFFERENCES.md lists all:
//
//   - Sizes are limited: [MaxArgument] for a variable or an argument, [MaxArguments] for all. Linux would not start a process with more.
//   - An environment file has at most 1 MiB, and all files of one container 4 MiB.
//   - An environment file must not be behind a symbolic link to an absolute path.
//   - Optional references are ignored if the agent has no Objects.
//
// Test kit: package objects has objects in memory; everything else is pure.
package podenv
