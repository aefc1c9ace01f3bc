// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package hook runs the postStart and preStop handlers of containers, and says how a preStop handler and the wait for
// other containers share the grace period of a pod. It stops no container, sends no event and keeps no state; whoever
// owns the pods does.
//
// # Model
//
// A [Runner] runs one handler to its end: a command in the container, an HTTP request to the pod, or a sleep.
//
//	runner := hook.New(hook.Options{Execer: runtime})
//	call := hook.Call{Pod: pod, Container: c, ContainerID: id, PodIP: ip}
//	err := runner.Run(ctx, call, c.Lifecycle.PostStart)
//
// After a postStart handler that fails, the container is stopped like any other, with its preStop handler and the
// grace period of the pod. A preStop handler that fails or is late changes nothing: the container is stopped
// all the same.
//
// All preStop handlers of a pod begin at once, those of sidecars too, unless the grace period is zero. Such a handler may
// take the whole grace period. If it has not ended then, the container is stopped beside it, and it may go on for the
// [MinimumGrace] that the container gets: its context should end that much after the grace period, or with the
// container. [Budget] says what is left for the container itself.
//
// [Restore] reads from the annotations of a container what is needed to end it well when its pod is no longer known.
//
// # Errors
//
// What goes wrong with a handler is an [*Error]. Its text is what the kubelet writes into the status of a container whose
// postStart handler failed, under [ReasonPostStartHookError]. Output and answers may have secrets in them, so
// events have a fixed text instead, which package lifecycle sends; see [EventFailedPostStartHook].
//
// # Concurrency
//
// All of it may be used from several goroutines. Run starts none that outlives it.
//
// # Source and differences
//
// The behaviour is that of kubelet 1.37.1 (pkg/kubelet/lifecycle/handlers.go; killContainer and executePreStopHook
// in pkg/kubelet/kuberuntime/kuberuntime_container.go, and labels.go beside it).
// The status of an HTTP answer does not matter, arguments of a command are not expanded, and tcpSocket handlers, which
// the API still accepts, fail.
//
// Differs from the kubelet:
//
//   - A handler ends when its context does, or after [Options].Timeout where that has no deadline. In the kubelet a
//     server that never answers holds the start of a pod for ever.
//   - An answer whose body has not ended by then is an error. Other faults of the body do not matter.
//   - No connection is kept open after the answer, so no request is sent twice because a kept one broke; nor is more than
//     256 KiB of headers read.
//   - A request that is sent again without TLS has no password in its URL either, and no redirect to an address with
//     the words of that error in it brings it about.
//   - Of the output of a command, errors have the first [MaxOutput] bytes, as valid UTF-8. An empty command is not tried.
//   - A sleep of more seconds than a [time.Duration] holds lasts until its context ends, where the kubelet's wraps around.
//   - For a pod on the network of its host the caller can give the address of the node; the kubelet fails the handler.
package hook
