// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package streaming serves the sessions of a runtime at URLs, as container runtimes do: it makes a [cri.Streamer] of a
// [cri.SessionRunner], for clients of CRI, which are answered with a URL when they ask for exec, attach or a port-forward. It
// speaks no protocol itself: package stream does.
//
// # Model
//
//	sessions, err := stream.New(stream.Options{Runner: runtime}) // limits and hooks are its options
//	...
//	urls := streaming.New(sessions, streaming.Options{})
//	l, err := net.Listen("tcp", "127.0.0.1:0")
//	...
//	go urls.Serve(ctx, l) // it also ends the sessions
//	err = criserver.New(runtime, criserver.Options{Streamer: urls}).Serve(ctx, socket)
//
// Whoever has a URL needs no other credentials: it has a token of 130 random bits, holds for one request and for a minute, and
// is one of at most 1,000. The listener must be on the loopback, since what is sent there is not encrypted.
//
// What belongs here: URLs and the tokens in them. What does not: whether the container exists and runs (package criserver asks
// the runtime before it asks for a URL), and the sessions (package stream).
//
// # Concurrency
//
// The methods that return URLs may be called from any goroutine, once Serve has been called. Serve owns all goroutines, and returns
// when the last session is over.
//
// # Errors
//
// Errors are of type [*cri.Error]. One for too many URLs is [cri.ErrTooMany], and one before or after Serve is
// [cri.ErrUnavailable]. A request without a valid token is answered with 404.
//
// # Differences from the streaming server of containerd
//
//   - Tokens have 130 random bits, not 48, and are valid for the kind of session that they were made for only.
//   - WebSockets of version 5 are spoken as well, and port-forwards through a tunnel.
//   - Connections that have sent no request are limited in number and time.
//
// Test kit: package streamtest has a scripted runtime, and clients for every protocol.
package streaming
