// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package grpcprobe probes a server with the gRPC health protocol, grpc.health.v1. It sends one request to one address
// and knows neither pods nor thresholds: package probe decides what the answers add up to.
//
// # Model
//
// A [Prober] has an address and the name of a service. SERVING is a success, and everything else that the server does,
// or does not do in time, is a failure, with the words of the kubelet (pkg/probe/grpc/grpc.go).
//
//	p, err := grpcprobe.New(grpcprobe.Config{Host: podIP, Port: 9090, Service: "ready"})
//	…
//	result, err := p.Probe(ctx) // ctx carries the timeout
//
// New opens nothing. The first probe connects, and the connection is kept for the next one as long as it answers, so a
// probe costs the container a call and no handshake. A connection without a probe for 90 seconds is closed, and so is
// any on which a call failed. An open connection takes some 40 KiB of the agent's memory and five goroutines of gRPC.
//
// # Concurrency
//
// A Prober may be used from several goroutines. [Prober.Close] closes the connection at once, as a probe.Set does when it
// drops a prober; a Prober that is merely forgotten holds nothing after 90 seconds.
//
// # Errors
//
// An error means that the caller cancelled the probe, or that the agent has no file descriptor left. [New] refuses a
// host, port or service that no server could be asked for, with an error that names the field.
//
// # Differs from the kubelet
//
// DIFFERENCES.md has the whole list. What a user has to know:
//
//   - Connections are reused, where the kubelet opens one for each probe: see Config.FreshConnections.
//   - A connection that is refused, or made to something that is no gRPC server, fails the probe at once with the
//     reason. The kubelet tries again until the timeout is over, so a server that listens late needs a startup probe.
//
// # Test kit
//
// There is no fake: probers are tested against grpc-go's health server, and whoever needs none uses a [probe.Func].
package grpcprobe
