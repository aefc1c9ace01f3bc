// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package cri has the types of what is observed and requested on a node (sandboxes, containers, images and their configs,
// as plain structs) and the interfaces of a container runtime. It calls no runtime itself and imports only the standard
// library; package remote speaks gRPC to containerd and CRI-O, package process is an embedded runtime, package critest is
// one in memory.
//
// # Model
//
// A pod is one [Sandbox] (more than one while an old one is being replaced) and the [Container] values inside it. A
// [Runtime] lists them and changes them; it is the sum of [Lister], [Sandboxes] and [Containers]. [Images] and [Puller]
// are separate, because a runtime without images is still a runtime.
//
// What only some runtimes can do is an interface of its own, found with a type assertion: [Inspector], [PodLister],
// [EventStreamer], [Execer], [Streamer], [SessionRunner], [LogReopener], [Updater], [StatsLister], [PodStatsLister],
// [MetricsLister], [StatusReporter], [Checkpointer] and [PodCIDRSetter].
//
//	snap, err := runtime.List(ctx)
//	for pod := range snap.Pods() {
//		fmt.Println(pod.Namespace, pod.Name, len(pod.Containers))
//	}
//
// What belongs here: types and interfaces that several runtimes implement and several packages use. What does not: calls,
// conversions to protobuf messages (package remote), and Kubernetes objects.
//
// # Concurrency
//
// Every method of every interface may be called from many goroutines at once. Values are plain data. Slices and maps inside
// a value that a runtime returned must not be written to, as runtimes may share them between calls. A config handed to a
// runtime is neither kept nor changed.
//
// # Errors
//
// An object that is not there is [ErrNotFound], a runtime that does not answer is [ErrUnavailable], a name that is in use
// is [ErrAlreadyExists], an answer that does not fit into a message is [ErrTooLarge], a deadline is
// [context.DeadlineExceeded], and a capability that the other end lacks is [errors.ErrUnsupported]. All are found with
// [errors.Is] on an [*Error], which also names the call and the object. Stopping or removing what is already stopped or
// gone is success, so that both can be repeated.
//
// The names and the meaning of fields are those of the CRI v1 protocol (k8s.io/cri-api, runtime/v1/api.proto). Fields for
// Windows are left out.
//
// Test kit: package critest has a runtime in memory, fault injection, and the conformance suite for implementations.
package cri
