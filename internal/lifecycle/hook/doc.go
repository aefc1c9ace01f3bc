// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package hook runs the postStart and preStop handlers of containers, and divides the grace period of a pod between a preStop
// handler and the container. It stops no containers, records no events and keeps no state; package lifecycle does.
//
// # Model
//
// A [Runner] runs one handler: a command in the container, an HTTP request to the pod, or a sleep.
//
//	runner := hook.New(hook.Options{Execer: runtime})
//	call := hook.Call{Pod: pod, Container: c, ContainerID: id, PodIP: ip}
//	err := runner.Run(ctx, call, c.Lifecycle.PostStart)
//
// If a postStart handler fails, the caller stops the container, with its preStop handler and the grace period of the pod. If a
// preStop handler fails or takes too long, the container is stopped nevertheless.
//
// All preStop handlers of a pod start at the same time, also those of sidecars, unless the grace period is zero. A handler may
// take the whole grace period. After that the container is stopped, and the handler may continue for [MinimumGrace]. [Budget]
// returns the remaining grace period of the container.
//
// [Restore] reads the data that is needed to stop a container of an orphaned pod from its annotations.
//
// # Concurrency
//
// All functions and methods are safe for concurrent use. Run leaves no goroutine behind.
//
// # Errors
//
// A failed handler returns an [*Error]. Its text is that of the kubelet in the status of a container with
// [ReasonPostStartHookError]. Command output and HTTP responses may contain secrets, so events have the fixed messages of this
// package.
//
// # Differs from the kubelet
//
// The model is pkg/kubelet/lifecycle/handlers.go and killContainer, executePreStopHook in
// pkg/kubelet/kuberuntime/kuberuntime_container.go of Kubernetes 1.37. As there, the HTTP status code is ignored, command
// arguments are not expanded, and tcpSocket handlers fail. Users must know:
//
//   - A handler ends with its context, or after [Options].Timeout if the context has no deadline. In the kubelet a server that never responds delays the start of a pod without limit.
//   - Errors contain the first [MaxOutput] bytes of the command output, as valid UTF-8; the kubelet puts all output into the pod status.
//   - An HTTP response whose body does not end in that time is an error.
//   - For a host-network pod the caller can pass a node address; the kubelet fails the handler.
//   - If the grace period of a pod is shorter than [MinimumGrace], preStop handlers get MinimumGrace.
//
// DIFFERENCES.md lists all differences.
//
// Test kit: package critest has an in-memory runtime with scripted commands; net/http/httptest serves HTTP handlers.
package hook
