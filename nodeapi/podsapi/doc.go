// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package podsapi serves the pods of a node to other programs on the node, by the gRPC service Pods of
// k8s.io/kubelet/pkg/apis/pods/v1alpha1 on a unix socket. It stores no pods: its responses come from a [Source].
//
//	listener, err := podsapi.Listen("/var/lib/kubelet/pods-api/pods-api.sock")
//	if err != nil {
//		return err
//	}
//	server := podsapi.New(podsapi.PodsWithStatus(reconciler), podsapi.Options{})
//	return server.Run(ctx, listener)
//
// ListPods and GetPod call the source. WatchPods sends each pod of the source as ADDED, then INITIAL_SYNC_COMPLETE, then the changes that
// [Server.StatusChanged], [Server.ResourcesReleased] and [Server.PodRemoved] receive. These methods are the lifecycle hooks of the same
// names. A pod is sent as protobuf bytes of a v1.Pod, with the status found by the agent.
//
// A watcher has a queue of 100 changes. If the queue is full the watcher is dropped: its stream ends with ResourceExhausted, and the client
// must start a new watch. ListPods and GetPod are limited to 100 calls per second, 10 at once. Only the user that runs the agent can open
// the socket.
//
// # Concurrency
//
// All methods may be called from any goroutine. StatusChanged, ResourcesReleased and PodRemoved do not wait for clients. Run owns all
// goroutines. A Source must be safe for concurrent use.
//
// # Errors
//
// Clients receive gRPC codes: NotFound, FailedPrecondition until the source is ready, ResourceExhausted at a limit, and Unavailable when the
// server stops. Run returns nil when its context ends, and an error if the listener fails or for a second call.
//
// # Differs from the kubelet
//
// The model is pkg/kubelet/apis/pods of Kubernetes 1.37. DIFFERENCES.md has all differences. Main ones:
//
//   - Listen returns an error for a socket on which another process listens, and for another kind of file; the kubelet removes both.
//   - The socket has mode 0600, regardless of the umask.
//   - A dropped watcher ends at once, even if its client does not read.
//   - When the server stops it ends its watches; the kubelet waits for their clients.
//
// Test kit: tests of a consumer use a [SourceFunc] and call the hook methods themselves.
package podsapi
