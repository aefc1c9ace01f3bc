// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package podresources serves the podresources API of the kubelet: monitoring agents and device plugins read from it which
// devices, CPUs, memory and claims the containers of a node use. It stores nothing: its responses come from the interfaces in
// [Options].
//
//	server, err := podresources.New(podresources.Options{
//		Socket:  "/var/lib/kubelet/pod-resources/kubelet.sock",
//		Pods:    pods,
//		Devices: allocator,
//	})
//	if err != nil {
//		return err
//	}
//	return server.Run(ctx)
//
// The gRPC services are PodResourcesLister of v1 (List, Get, GetAllocatableResources) and of v1alpha1 (List). Requests are limited
// to 100 per second, 10 at once. Only the user that runs the agent can open the socket.
//
// # Concurrency
//
// Run owns all goroutines, and opens the socket again if it fails. A request reads the sources itself: there is no cache. Sources
// must be safe for concurrent use. If a source hangs, its requests fail after Options.Timeout, but Run does not return before the source
// does.
//
// # Errors
//
// Clients receive gRPC codes: Unknown for Get of a pod that is not active, as from the kubelet, ResourceExhausted at the rate
// limit, and DeadlineExceeded. Run returns nil when its context ends, and an error for a second call.
//
// # Differs from the kubelet
//
// The model is pkg/kubelet/apis/podresources of Kubernetes 1.37.1. DIFFERENCES.md has all differences. Main ones:
//
//   - An active pod is not listed while its devices are not reserved, unless Options.ListUnreserved is set.
//   - A socket on which another process listens, and another kind of file, are not removed; Run retries.
//   - The socket has mode 0600, regardless of the umask.
//   - Above 100 open connections, the longest idle connection is closed after half a second.
//
// Test kit: tests of a consumer use a [PodsFunc] and a socket in a temporary directory.
package podresources
