// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package httpprobe probes a container with an HTTP GET request. It sends one request to one URL and knows neither pods
// nor thresholds: package probe decides what the answers add up to, and package podprobe makes probers of a pod.
//
// # Model
//
// A [Prober] has a URL, headers and a [Pool] that it shares with the other probers of the node. The pool keeps
// connections open between probes, so that most probes cost a server one request and no handshake.
//
//	pool := httpprobe.NewPool(httpprobe.PoolOptions{})
//	defer pool.Close()
//	p, err := httpprobe.New(httpprobe.Config{Host: podIP, Port: 8080, Path: "/healthz", Pool: pool})
//	…
//	result, err := p.Probe(ctx) // ctx carries the timeout
//
// # Concurrency
//
// Probers and pools may be used from several goroutines. A probe runs in the goroutine of its caller and leaves none
// behind; connections over TLS have goroutines of net/http, which end half a minute after the last probe or soon after
// [Pool.Close].
//
// # Errors
//
// Whatever the server does, or does not do in time, is a result. An error means that the caller cancelled the probe or
// that the agent has no file descriptor left. [New] refuses a URL or a header that no server could be sent, with an error
// that names the field.
//
// # Differs from the kubelet
//
// The model is pkg/probe/http of Kubernetes 1.37. DIFFERENCES.md has the whole list. What a user has to know:
//
//   - With a Pool up to three probes in a row may use a connection that is already open, if the server speaks HTTP/1.1.
//     A server with a single worker may be kept busy by an idle connection: set Config.FreshConnections.
//   - A body that stalls or breaks off is a failure; the kubelet discards such a probe.
//
// # Test kit
//
// There is no fake: probers are tested against net/http/httptest, and whoever needs none uses a [probe.Func].
package httpprobe
