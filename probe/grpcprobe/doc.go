// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package grpcprobe runs gRPC probes: it calls the health service grpc.health.v1 of a container and turns the response into a
// probe result. It does not apply thresholds, as package probe does, and does not read pods.
//
//	p, err := grpcprobe.New(grpcprobe.Config{Host: podIP, Port: 9090, Service: "ready"})
//	…
//	result, err := p.Probe(ctx) // ctx carries the timeout
//
// # Model
//
// A [Prober] has an address and the name of a service. The status SERVING is a success. Any other response, and none in time, is
// a failure with the kubelet's text (pkg/probe/grpc/grpc.go).
//
// New opens no connection. The first probe connects, and later probes reuse the connection while it works. A connection is closed
// after 90 seconds without a probe, and after a failed call. An open connection needs about 40 KiB of memory and five goroutines
// of gRPC.
//
// # Concurrency
//
// A Prober may be used concurrently. [Prober.Close] closes the connection at once; a probe.Set calls it when it removes a prober.
// A prober that is not closed holds no resources after 90 seconds.
//
// # Errors
//
// An error means that the caller cancelled the probe, or that the agent has no file descriptor left. [New] rejects an invalid
// host, port or service with an error that names the field.
//
// # Differs from the kubelet
//
// DIFFERENCES.md has all differences. The most important ones:
//
// - Connections are reused; the kubelet opens one for each probe: see Config.FreshConnections.
// - A refused connection, or a server without gRPC, fails the probe at once. The kubelet retries until the timeout, so a server that starts to listen late needs a startup probe.
//
// Test kit: none. Tests use grpc-go's health server, or a [probe.Func] in place of a prober.
package grpcprobe
