// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package nodeapi serves the HTTP API of a node that kubectl, the API server and Prometheus talk to on port 10250: pods, logs, sessions,
// summaries, metrics, health. Its data come from the parts in [Options]; it speaks none of the protocols of interactive sessions.
//
// # Model
//
// [New] makes a [Server] of what is to be served. Its three handlers are all of the API, protected by an [auth.Access]; what the kubelet
// serves on its read-only port; and health alone. [Server.Run] serves them at listeners, or whoever has an [http.Server] mounts them:
//
//	ca, err := auth.NewCAFile("/etc/kubernetes/pki/ca.crt", nil)                              // nil: a bad file is not told
//	files, err := nodeapi.NewServingFiles("/etc/node/serving.crt", "/etc/node/serving.key", nil) // the same
//	access, err := auth.New(auth.Options{NodeName: "node-1", ClientCAs: ca.Pool, Tokens: tokens, Access: reviews})
//	streams, err := streaming.New(streaming.Options{Streamer: runtime}) // or Runner, for a cri.SessionRunner
//	server, err := nodeapi.New(nodeapi.Options{
//		Access: access, Pods: pods, Runtime: runtime, Streams: streams, Summary: collector,
//		Metrics: nodeapi.Metrics{All: page}, NodeLogs: nodeLogs, Settings: settings,
//	})
//	config, err := nodeapi.TLSConfig(nodeapi.TLSOptions{GetCertificate: files.GetCertificate, ClientCAs: ca.Pool})
//	err = server.Run(ctx,
//		nodeapi.Endpoint{Listener: l, Handler: server.Handler(), TLS: config},
//		nodeapi.Endpoint{Listener: local, Handler: server.Healthz()})
//
// What is nil in [Options] answers 404, as in a kubelet that lacks it: Pods /pods, Summary /stats/summary, each page of Metrics its own,
// Pods or Runtime /containerLogs, Runtime /runningpods, Streams /exec, /attach and /portForward, an Execer /run, Checkpointer /checkpoint,
// Settings /configz, Flags /flagz. Level, Profiling and NodeLogs answer 405 with the kubelet's words. [NewNodeLogs] makes the handler of
// /logs/, which reads the log files and the journal of the machine.
//
// What belongs here: paths, queries, status codes and bodies, which are the kubelet's; the log files and the journal of the machine;
// listeners, TLS, deadlines and limits. What does not: who may do what (package auth), protocols of sessions (package streaming), and what
// metrics say (package prom).
//
// # Concurrency
//
// Handlers may be called from many goroutines, and so may all that Options have. Run owns its goroutines, and returns when the last
// handler has. A log that is followed has one timer.
//
// # Bounds
//
// A client has Options.HeaderTimeout for the TLS handshake and for the headers of each request, BodyTimeout for a body, which has 1 MiB at
// most, and StallTimeout to read something of an answer. Nothing else ends a log that is followed. An endpoint has MaxConnections, of which
// MaxUnauthenticated are not authenticated; beyond these the oldest stranger is closed.
//
// # Errors
//
// Answers are the kubelet's, in plain text. Run returns why an endpoint failed. What goes wrong while a response is under way ends it.
//
// # Differs from the kubelet
//
// The model is pkg/kubelet/server of Kubernetes 1.37. A user has to know:
//
//   - Nothing ends after 4 hours; who makes no progress for Options.StallTimeout is cut off.
//   - /containerLogs reaches into rotated files, and following loses no line over a rotation; see Options.CurrentLogsOnly.
//   - Headers may have 64 KiB and 10 s, and connections are limited before anybody is authenticated.
//   - A summary that lacks numbers of one source is served without them.
//   - Certificates that are replaced take effect within a second, whichever way.
//
// All others are in DIFFERENCES.md.
//
// # When not to use it
//
// For an agent that nobody asks: it needs no API. For metrics alone package prom has a handler.
//
// Test kit: package critest has a runtime in memory, and package authtest reviewers; the other interfaces have two or three methods.
package nodeapi
