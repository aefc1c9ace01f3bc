// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package streaming serves the sessions that kubectl exec, attach, port-forward and cp open on a node: a [Server] upgrades an
// HTTP request to SPDY or a WebSocket and connects the client with the container runtime. It neither authorizes requests nor
// finds the container of a pod: its caller does both.
//
//	server, err := streaming.New(streaming.Options{Streamer: client, PodOf: podOf}) // client is of cri/remote
//	server.ServeExec(w, r, containerID, cmd, options) // in an HTTP handler
//	server.CloseSessions(containerID, "container has exited")
//	server.Shutdown(ctx) // before the agent exits: http.Server does not track upgraded connections
//
// # Model
//
// A Server uses one of two runtime interfaces:
//
// - A [cri.Streamer] returns a URL. The Server forwards the upgrade to the URL and copies all bytes unchanged. It translates the protocols that runtimes lack: a WebSocket of version 5, which can close stdin, becomes SPDY of version 4, and a WebSocket that carries the SPDY of a port-forward is unwrapped.
// - A [cri.SessionRunner] runs sessions itself, and the Server implements the protocols: SPDY of versions 1 to 4, and WebSockets of versions 1, 4 and 5, binary and base64.
//
// A session ends with its command, its client, [Server.CloseSessions] or the shutdown. It also ends when no byte is transferred
// for Options.IdleTimeout, or when a peer accepts no byte for Options.StallTimeout; it has no maximum age. The memory of a
// session is bounded. The number of sessions is limited, per node and per pod; a request beyond a limit gets status 429.
//
// A [URLServer] implements cri.Streamer with a Server and a SessionRunner, for a runtime that is itself served over CRI:
//
//	urls := streaming.NewURLServer(server, streaming.URLOptions{})
//	l, err := net.Listen("tcp", "127.0.0.1:0") // sessions are not encrypted: only the loopback is accepted
//	go urls.Serve(ctx, l)                      // closes the sessions of server when ctx ends
//
// A client needs only the URL: its token of 130 random bits is valid for a single request within a minute.
//
// # Concurrency
//
// All methods may be called from any goroutine. The Serve methods of a Server return when their session has ended and its
// resources are released. URLServer.Serve owns its goroutines and must run before URLs are requested.
//
// # Errors
//
// Before the upgrade, the client gets a status and a text, as from the kubelet. After it, the client gets the error in the
// protocol if the protocol has a way to send it. [Hooks].SessionFinished gets the error in both cases. Methods that return URLs
// return a [*cri.Error]: [cri.ErrTooMany] for too many URLs, and [cri.ErrUnavailable] before or after Serve.
//
// # Differs from the kubelet
//
// - Sessions are limited: see Options.MaxSessions and MaxPerPod; negative values disable the limits, as in the kubelet.
// - A command that a [cri.SessionRunner] runs is killed when its client disconnects.
// - The runtime gets only the upgrade headers of the client, and must be on the loopback: see Options.AllowAnyHost.
// - An upgrade request with a body is refused.
// - Output is not lost when a client sends data while its session ends.
//
// DIFFERENCES.md has all differences, also from the streaming server of containerd. Test kit: package critest has a runtime with
// scripted sessions.
package streaming
