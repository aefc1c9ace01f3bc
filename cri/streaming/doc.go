// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package streaming serves what kubectl exec, attach, port-forward and cp talk to on a node: it upgrades requests and connects
// them with a container runtime. It knows no pods and authorizes nobody: its caller has done both.
//
// # Model
//
// A [Server] has one of two kinds of runtime. One that is a [cri.Streamer] names a URL: the upgrade is passed on to it and
// then every byte as it is, be it SPDY/3.1 or a WebSocket of version 4. What such runtimes do not speak is translated:
// WebSockets of version 5, with their signal that closes a stream, become SPDY of version 4, and a WebSocket that carries the
// SPDY of a port-forward is unpacked. One that is a [cri.SessionRunner] runs sessions itself, and this package speaks the
// protocols: SPDY of versions 1 to 4; WebSockets of versions 1, 4 and 5, binary and in base64; port-forwards by all of them.
//
//	server, err := streaming.New(streaming.Options{Streamer: client, PodOf: podOf}) // client is of cri/remote
//	...
//	server.ServeExec(w, r, containerID, cmd, options) // in a handler
//	...
//	server.End(containerID, "container has exited") // where the agent notices it
//	...
//	server.Shutdown(ctx) // before the agent exits: http.Server does not know of connections that were upgraded
//
// # What ends a session
//
// Its command, its client, [Server.End], the shutdown, and standing still: for Options.Idle no byte moves, or for Options.Stall
// a peer does not take one. Nothing ends it at a fixed age. Where the protocol is spoken here, the client is told why. Output
// that is on its way when a command ends is the client's to read for Options.Linger.
//
// # What a session costs
//
// Each direction of a session is copied with what memory it has, some kilobytes while it is idle; whoever does not read stops
// its own session, and on SPDY its own connection. A forwarded connection that nobody reads holds up the others of its
// session for Options.Unread, and is then reset. Frames are read in pieces: their length costs no memory. The number of
// sessions is limited, on the node and for each pod, and what is too many is answered with 429.
//
// # Concurrency
//
// All methods may be called from any goroutine. The Serve methods return when their session is over and nothing of it is
// left; there is no Run.
//
// # Errors
//
// Before the upgrade they are answered with a status and a text, as the kubelet has them; after it the client gets them in
// the protocol, where it has a place for them, and [Hooks].Ended does.
//
// # Differs from the kubelet
//
// DIFFERENCES.md has the whole list. What a user has to know:
//
//   - Sessions are counted and limited: Options.MaxStreams and MaxPerPod, negative for the kubelet's way.
//   - A command that a [cri.SessionRunner] runs is killed when its client goes.
//   - The runtime sees of the client's headers only those of the upgrade, and has to be on the loopback: Options.AnyHost.
//   - An upgrade request with a body is refused.
//   - Output is not lost when a client sends while its session ends.
//
// # When not to use it
//
// For commands without a client: see [cri.Execer].
//
// Test kit: internal/streaming/streamtest has a scripted runtime of both kinds and clients for every protocol.
package streaming
