// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package cri defines the types and interfaces of a container runtime: sandboxes, containers, images, their configs, and the
// calls that list and change them. It calls no runtime and imports only the standard library.
//
// Package remote implements the interfaces with a gRPC client of containerd or CRI-O, package process with an embedded runtime,
// and package critest with a runtime in memory.
//
// # Model
//
// A pod has one [Sandbox], or more while the old one is being replaced, and the [Container] values inside it. A [Runtime] lists
// and changes them; it combines [Lister], [Sandboxes] and [Containers]. [Images] and [Puller] are separate interfaces, because a
// runtime need not manage images.
//
// Each optional capability is an interface that the caller finds with a type assertion: [Inspector], [PodLister],
// [EventStreamer], [Execer], [Streamer], [SessionRunner], [LogReopener], [Updater], [StatsLister], [PodStatsLister],
// [MetricsLister], [StatusReporter], [Checkpointer] and [PodCIDRSetter].
//
//	snap, err := runtime.List(ctx)
//	for pod := range snap.Pods() {
//		fmt.Println(pod.Namespace, pod.Name, len(pod.Containers))
//	}
//
// The package contains types and interfaces that several runtimes implement and several packages use. It contains no conversions
// to protobuf messages (package remote) and no Kubernetes objects.
//
// # Concurrency
//
// All methods of all interfaces may be called concurrently. Values are plain data. Callers must not modify slices and maps inside
// a value that a runtime returned, because runtimes may share them between calls. A runtime neither keeps nor changes a config
// passed to it.
//
// # Errors
//
// Errors match these values with [errors.Is]: [ErrNotFound] if the object does not exist, [ErrUnavailable] if the runtime does
// not respond, [ErrAlreadyExists] if a name is in use, [ErrTooLarge] if a response exceeds the maximum message size,
// [context.DeadlineExceeded] at a deadline, and [errors.ErrUnsupported] if the runtime lacks a capability. Every error is an
// [*Error], which also names the call and the object. Stopping a stopped object or removing a removed one succeeds, so both calls
// can be repeated.
//
// Names and meanings of fields are those of the CRI v1 protocol (k8s.io/cri-api, runtime/v1/api.proto). Fields for Windows are
// omitted.
//
// Test kit: package critest has a runtime in memory, fault injection, and a conformance suite for implementations.
package cri
