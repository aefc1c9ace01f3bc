// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package hook runs the postStart and preStop handlers of containers, and computes how a preStop handler and the wait for
// other containers share the grace period of a pod. It stops no container, sends no event and keeps no state; that is up to
// package lifecycle.
//
// # Model
//
// A [Runner] runs one handler to its end: a command in the container, an HTTP request to the pod, or a sleep.
//
//	runner := hook.New(hook.Options{Execer: runtime})
//	call := hook.Call{Pod: pod, Container: c, ContainerID: id, PodIP: ip}
//	err := runner.Run(ctx, call, c.Lifecycle.PostStart)
//
// A container whose postStart handler fails is stopped like any other, with its preStop handler and the grace period of the
// pod. A preStop handler that fails or exceeds its time changes nothing: the container is stopped nevertheless.
//
// All preStop handlers of a pod start at once, those of sidecars too, unless the grace period is zero. A handler may take
// the whole grace period. If it is still running then, the container is stopped meanwhile, and the handler may go on for
// the [MinimumGrace] that the container gets: its context should end that much after the grace period, or with the
// container. [Budget] returns what is left for the container itself.
//
// [Restore] reads from the annotations of a container what is needed to stop it properly when its pod is orphaned.
//
// What belongs here: running one handler, and its share of the grace period. What does not: when handlers run, and events.
//
// # Concurrency
//
// All of it may be used from several goroutines. Run starts none that outlives it.
//
// # Errors
//
// The error of a handler is an [*Error]. Its text is what the kubelet writes into the status of a container whose postStart
// handler failed, with [ReasonPostStartHookError]. Output and answers may contain secrets, so events have a fixed text
// instead, which package lifecycle sends: podevents.ReasonFailedPostStartHook.
//
// # Differs from the kubelet
//
// The model is pkg/kubelet/lifecycle/handlers.go and killContainer, executePreStopHook in
// pkg/kubelet/kuberuntime/kuberuntime_container.go of Kubernetes 1.37. As there, the status code of an HTTP answer does not
// matter, arguments of a command are not expanded, and tcpSocket handlers fail. A user has to know:
//
//   - A handler ends when its context does, or after [Options].Timeout where that has no deadline. In the kubelet a server
//     that never answers delays the start of a pod without a limit.
//   - Errors contain the first [MaxOutput] bytes of the output of a command, as valid UTF-8; the kubelet puts all of it into
//     the status of the pod.
//   - An HTTP answer whose body has not ended within that time is an error.
//   - For a pod on the network of its host the caller can pass the address of the node; the kubelet fails the handler.
//   - Where the grace period of a pod is shorter than [MinimumGrace], preStop handlers have that much.
//
// All others are in DIFFERENCES.md.
//
// Test kit: package critest has a runtime in memory whose scripts answer commands; net/http/httptest serves HTTP handlers.
package hook
