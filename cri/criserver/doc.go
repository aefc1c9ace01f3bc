// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package criserver serves any [cri.Runtime] as a CRI v1 runtime and image service over gRPC, for crictl, the kubelet and
// package remote. It does not create the socket, keeps no state except the IDs that it has seen, and decides nothing: every
// call goes to the runtime.
//
// # Model
//
//	l, err := net.Listen("unix", path)
//	if err != nil {
//		return err
//	}
//	return criserver.New(runtime, criserver.Options{}).Serve(ctx, l)
//
// Optional capabilities of package cri are found by assertion when the server is made. A call that needs a missing one is
// answered with Unimplemented, with two exceptions: without a [cri.StatusReporter] the runtime is reported as ready, and
// without a [cri.Inspector] a status is taken from the list.
//
// Streaming calls are answered with the URLs of a [cri.Streamer], which is the runtime itself or that of the options; the latter
// is asked only for containers that run and sandboxes that are ready. Package streaming makes one of a runtime that is a
// [cri.SessionRunner], so that crictl and the kubelet can exec, attach and forward ports into it. ExecSync needs a [cri.Execer] or a [cri.SessionRunner].
//
// List calls filter by ID, state, labels and sandbox. Wherever the ID of a sandbox or container is expected, a prefix of it
// is enough if it is unique, as users of crictl expect; a full ID always stands for itself. A call with an ambiguous prefix
// is InvalidArgument and says how many IDs match; a filter with one matches nothing. An ID that the server has not seen
// costs a list of the runtime.
//
// Checkpoints of pods and the stream variants of the list calls are Unimplemented, and verbose information is not
// given. UpdateRuntimeConfig (the pod CIDR) is accepted and ignored where the runtime is no [cri.PodCIDRSetter]: it has no
// network to configure.
//
// What belongs here: the server side of the protocol. What does not: conversions (internal/cripb), who may connect (the
// permissions of the socket), and any state of pods.
//
// # Concurrency
//
// Serve owns all goroutines and returns when they have ended. Every client of the event stream has a buffer of its own. A
// client that falls behind by more than that gets what is in the buffer and then ResourceExhausted: it knows that it has
// missed events, and other clients are not delayed.
//
// # Errors
//
// Errors of package cri become the gRPC codes that they were made from, with the cause as the message. Any other error is
// Unknown, as in containerd. A request without a part that the protocol requires is InvalidArgument.
//
// Test kit: package critest has runtimes in memory to serve, and the conformance suite, which passes through this server.
package criserver
