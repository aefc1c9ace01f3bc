// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package criserver serves any [cri.Runtime] as the CRI v1 runtime and image services over gRPC, for crictl, the kubelet and
// package remote. It does not create the socket, and its only state is a cache of IDs: every call goes to the runtime.
//
//	l, err := net.Listen("unix", path)
//	if err != nil {
//		return err
//	}
//	return criserver.New(runtime, criserver.Options{}).Serve(ctx, l)
//
// # Model
//
// New finds the optional capabilities of the runtime by type assertion. A call that needs a missing capability fails with
// Unimplemented, with two exceptions: without a [cri.StatusReporter] the runtime is reported as ready, and without a
// [cri.Inspector] a status is taken from the list.
//
// Exec, Attach and PortForward return URLs of a [cri.Streamer]: the runtime itself, or Options.Streamer. The server calls
// Options.Streamer only for running containers and ready sandboxes. Package streaming implements a Streamer for a runtime that is
// a [cri.SessionRunner]. ExecSync needs a [cri.Execer] or a [cri.SessionRunner].
//
// List calls filter by ID, state, labels and sandbox. A request may use a unique prefix of the ID of a sandbox or container, as
// users of crictl expect; a full ID takes precedence. An ambiguous prefix is InvalidArgument in a call, and matches nothing in a
// filter. An ID unknown to the server costs one List of the runtime.
//
// Pod checkpoints and the streaming list calls are Unimplemented, and verbose information is empty. UpdateRuntimeConfig (the pod
// CIDR) is accepted and ignored if the runtime is no [cri.PodCIDRSetter].
//
// The package contains the server side of the protocol. It does not convert messages (internal/cripb) or authenticate clients
// (the permissions of the socket do).
//
// # Concurrency
//
// Serve owns all goroutines and returns when they have exited. Every client of the event stream has its own buffer. When the
// buffer is full, the client receives its content and then ResourceExhausted: it knows that it missed events. A slow client does
// not delay other clients.
//
// # Errors
//
// Errors of package cri become the gRPC codes from which package remote restores them, with the cause as message. Other errors
// are Unknown, as in containerd. A request without a required field is InvalidArgument.
//
// Test kit: package critest has runtimes in memory to serve, and the conformance suite, which passes through this server.
package criserver
