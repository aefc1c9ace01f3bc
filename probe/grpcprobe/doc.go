// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package grpcprobe asks a server how it is by the gRPC health protocol, grpc.health.v1. It puts one question to one
// address and knows neither pods nor thresholds: package probe decides what the answers mean.
//
//	p, err := grpcprobe.New(grpcprobe.Config{Host: podIP, Port: 9090, Service: "ready"})
//	…
//	result, err := p.Probe(ctx) // ctx carries the timeout
//
// SERVING is a success and everything else that the server does, or does not do in time, is a failure, with the words
// of the kubelet (pkg/probe/grpc/grpc.go). An error means that the caller took the question back, or that the agent has no
// file descriptor left to ask with.
//
// # Connections
//
// New opens nothing. The first probe connects, and the connection is kept for the next one as long as it answers, so a
// probe costs the container a call and no handshake. A connection without a probe for 90 seconds is closed, and so
// is any on which a call failed. [Prober.Close] closes it at once, as a probe.Set does when it drops one; a Prober that
// is merely forgotten holds nothing after these 90 seconds. An open connection takes some 40 KiB of the agent's memory
// and five goroutines of gRPC.
//
// # Differs from the kubelet
//
//   - Connections are reused, where the kubelet makes one for each probe; [Config.NewConnection] does as it does. A kept
//     connection that turns out to be broken is replaced within the same probe.
//   - A connection that is refused, or made to something that is no gRPC server, fails the probe at once with the
//     reason. The kubelet tries again until the timeout is over and then says no more than that;
//     [Config.WaitForReady] does as it does.
//   - A canceled probe, and one for which the agent has no file descriptor, are errors, not failures.
//   - TLS needs no feature gate.
//   - Host, port and service are checked by New. The kubelet learns from the failing probe.
package grpcprobe
