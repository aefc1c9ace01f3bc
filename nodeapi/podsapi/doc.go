// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package podsapi serves the pods of a node to other programs of the node, by the gRPC service Pods of
// k8s.io/kubelet/pkg/apis/pods/v1alpha1 on a unix socket. It keeps no pods: what it answers comes from a [Source].
//
// # Model
//
// ListPods and GetPod ask the source at each call. WatchPods sends every pod of the source as ADDED, then
// INITIAL_SYNC_COMPLETE, then what [Server.Updated], [Server.Terminated] and
// [Server.Removed] are called with. A pod is sent as the bytes of a
// v1.Pod with the status that the agent has for it.
//
//	l, err := podsapi.Listen("/var/lib/kubelet/pods-api/pods-api.sock")
//	...
//	s := podsapi.New(source, podsapi.Options{})
//	hooks := lifecycle.Hooks{Status: s.Updated, Left: s.Terminated, Gone: s.Removed}
//	err = s.Run(ctx, l)
//
// A watcher may be 100 changes behind. One that is further behind is dropped: its stream ends with ResourceExhausted, also
// where the client reads nothing at all, and it has to begin anew. Calls of ListPods and GetPod are limited to 100 in a second,
// 10 at once.
//
// What belongs here: the service, its limits, and its socket. What does not: which pods there are, and who may connect: the
// socket can be used by the user that the agent runs as.
//
// # Concurrency
//
// All methods may be called from any goroutine. Updated, Terminated and Removed do not wait for a client. Run owns every goroutine; a
// Source is called from several of them at a time.
//
// # Errors
//
// Clients see gRPC codes: NotFound, FailedPrecondition until the source is ready, ResourceExhausted for a limit, Unavailable
// when the server ends. Run returns an error for a listener that fails and for a second call, and nil when its context ends.
//
// # Differs from the kubelet
//
// The model is pkg/kubelet/apis/pods of Kubernetes 1.37. A user has to know:
//
//   - A socket on which somebody still answers, and a file that is no socket, are errors of Listen; the kubelet removes either.
//   - The socket has mode 0600, whatever the umask is.
//   - A dropped watcher that does not read costs nothing more; in the kubelet its call goes on until it disconnects.
//   - A server that ends ends its watches; the kubelet waits for their clients.
//
// All others are in DIFFERENCES.md.
//
// Test kit: the tests of a consumer use a [SourceFunc], and call Updated, Terminated and Removed as hooks would.
package podsapi
