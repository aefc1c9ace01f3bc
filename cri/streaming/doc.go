// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package streaming serves the sessions that kubectl exec, attach, port-forward and cp open on a node: a [Server] upgrades a request and
// connects its client with a container runtime, and a [URLServer] gives a session a URL, as container runtimes do. It knows no pods and
// authorizes no request: its caller does both.
//
// # Model
//
// A [Server] has one of two kinds of runtime. A [cri.Streamer] returns a URL: the Server forwards the upgrade to it and then copies the
// bytes unchanged, be they SPDY/3.1 or a WebSocket of version 4. Protocols that such runtimes lack are translated: WebSockets of version 5,
// whose signal closes a stream, become SPDY of version 4, and a WebSocket that carries the SPDY of a port-forward is unpacked. A
// [cri.SessionRunner] runs sessions itself, and the Server speaks the protocols: SPDY of versions 1 to 4; WebSockets of versions 1, 4 and
// 5, binary and in base64; port-forwards by all of them.
//
//	server, err := streaming.New(streaming.Options{Streamer: client, PodOf: podOf}) // client is of cri/remote
//	server.ServeExec(w, r, containerID, cmd, options) // in a handler
//	server.End(containerID, "container has exited")   // when the agent notices the exit
//	server.Shutdown(ctx)                              // before the agent exits: http.Server forgets upgraded connections
//
// A session ends with its command, its client, [Server.End] or the shutdown; when no byte moves for Options.Idle; and when a peer accepts
// no byte for Options.Stall. No session ends because of its age. Its memory is bounded: a peer that does not read stops its own session.
// The number of sessions is limited, on the node and for each pod; a request beyond the limits gets 429.
//
// A [URLServer] makes a cri.Streamer of a Server with a SessionRunner, for a runtime that is served over CRI:
//
//	urls := streaming.NewURLServer(server, streaming.URLOptions{})
//	l, err := net.Listen("tcp", "127.0.0.1:0") // sessions are not encrypted: only the loopback is accepted
//	go urls.Serve(ctx, l)                      // ends the sessions of server when ctx ends
//	err = criserver.New(runtime, criserver.Options{Streamer: urls}).Serve(ctx, socket)
//
// A client needs no credentials but the URL: it has a token of 130 random bits, is valid for one request of one kind within a minute, and
// is one of at most 1,000.
//
// # Concurrency
//
// All methods may be called from any goroutine. The Serve methods of a Server return when their session has ended and its resources are
// released; it has no Run. URLServer.Serve owns its goroutines and returns after the last session; the methods that return URLs need it.
//
// # Errors
//
// Before the upgrade, the client gets a status and a text, as from the kubelet; after it, the error in the protocol, where that can carry
// one. [Hooks].Ended gets it in both cases. The methods that return URLs return a [*cri.Error]: [cri.ErrTooMany] for too many URLs, and
// [cri.ErrUnavailable] before or after Serve. A URL without a valid token answers 404.
//
// # Differs from the kubelet
//
//   - Sessions are counted and limited: Options.MaxStreams and MaxPerPod, negative for the kubelet's way.
//   - A command that a [cri.SessionRunner] runs is killed when its client disconnects.
//   - The runtime gets only the upgrade headers of the client, and must be on the loopback: Options.AnyHost.
//   - An upgrade request with a body is refused.
//   - Output is not lost when a client sends while its session ends.
//
// DIFFERENCES.md has all differences, also from the streaming server of containerd. For commands without a client see [cri.Execer].
//
// Test kit: package critest has a runtime whose sessions are scripts, and [cri.SessionRunner] faults.
package streaming
