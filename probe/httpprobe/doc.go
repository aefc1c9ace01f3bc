// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package httpprobe runs HTTP probes: it sends a GET request to a container and turns the response into a probe result. It does
// not apply thresholds, as package probe does, and does not read pods, for which package podprobe creates probers.
//
//	pool := httpprobe.NewPool(httpprobe.PoolOptions{})
//	defer pool.Close()
//	p, err := httpprobe.New(httpprobe.Config{Host: podIP, Port: 8080, Path: "/healthz", Pool: pool})
//	…
//	result, err := p.Probe(ctx) // ctx carries the timeout
//
// # Model
//
// A [Prober] has a URL, headers and a [Pool] that all probers of a node share. The pool keeps connections open between probes, so
// that most probes cost a single request and no handshake.
//
// # Concurrency
//
// Probers and pools may be used concurrently. A probe runs in the goroutine of its caller. Idle TLS connections have goroutines
// of net/http, which end half a minute after the last probe or soon after [Pool.Close].
//
// # Errors
//
// Every response, and a missing one, is a result. An error means that the caller cancelled the probe or that the agent has no
// file descriptor left. [New] rejects an invalid URL or header with an error that names the field.
//
// # Differs from the kubelet
//
// The model is pkg/probe/http of Kubernetes 1.37. DIFFERENCES.md has all differences. The most important ones:
//
// - With a Pool, up to three consecutive probes may reuse an open connection to an HTTP/1.1 server. An idle connection may block a server with a single worker: set Config.FreshConnections.
// - An incomplete body is a failure; the kubelet discards such a probe.
//
// Test kit: none. Tests use net/http/httptest, or a [probe.Func] in place of a prober.
package httpprobe
