// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package nodeapi serves the HTTP API of the kubelet, which kubectl, the API server and Prometheus use on port 10250: pods, logs, exec
// sessions, summaries, metrics and health. It has no data of its own: all responses come from the parts in [Options].
//
//	server, err := nodeapi.New(nodeapi.Options{
//		Access: access, Pods: pods, Runtime: runtime, Streams: streams, Summary: collector,
//		Metrics: nodeapi.Metrics{All: page}, NodeLogs: nodeLogs, Settings: settings,
//	})
//	if err != nil {
//		return err
//	}
//	config, err := nodeapi.TLSConfig(nodeapi.TLSOptions{GetCertificate: files.GetCertificate, ClientCAs: ca.Pool})
//	if err != nil {
//		return err
//	}
//	return server.Run(ctx,
//		nodeapi.Endpoint{Listener: public, Handler: server.Handler(), TLS: config},
//		nodeapi.Endpoint{Listener: local, Handler: server.Healthz()})
//
// Access is an [auth.Access], and files is a [ServingFiles]. Package streaming implements Streams, package stats implements Summary, and
// [NewNodeLogs] returns the handler of /logs/. A [Server] has three handlers: the whole API, authorized by Access; the paths of the kubelet's
// read-only port; and health only. A program with an [http.Server] of its own can use them without [Server.Run].
//
// Paths, query parameters, status codes and response bodies are those of the kubelet. A path whose option is nil answers 404, or 405 for
// LogLevel, Profiling and NodeLogs, as in a kubelet without it.
//
// # Concurrency
//
// Handlers, and all parts in Options, are called from many goroutines. Run owns its goroutines, and returns after the last handler has
// returned.
//
// # Limits
//
// Options.HeaderTimeout, BodyTimeout and StallTimeout limit a TLS handshake and headers, a request body of at most 1 MiB, and a write without
// progress. Followed logs have no other limit. MaxConnections limits the connections per endpoint, and MaxUnauthenticated those without an
// authorized request so far.
//
// # Errors
//
// Error responses are plain text, as in the kubelet. Run returns the error of the endpoint that failed. An error after the start of a
// response ends that response.
//
// # Differs from the kubelet
//
// The model is pkg/kubelet/server of Kubernetes 1.37. DIFFERENCES.md has all differences. Main ones:
//
//   - No request ends after 4 hours; a client without progress for Options.StallTimeout is disconnected.
//   - /containerLogs includes rotated files, and following loses no line at a rotation; see Options.CurrentLogsOnly.
//   - Headers have at most 16 KiB and 10 s, and connections are limited before authentication.
//   - A summary in which a source failed is served without the values of that source.
//   - A replaced certificate takes effect within a second.
//
// Test kit: package critest has an in-memory runtime, and package authtest has in-memory reviewers.
package nodeapi
