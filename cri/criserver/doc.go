// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package criserver serves any [cri.Runtime] as a CRI v1 runtime and image service over gRPC, so that crictl, the
// kubelet and package remote can talk to it. It does not make the socket, holds no state of its own but the IDs that it
// has seen, and decides nothing: every call goes to the runtime.
//
// # Model
//
//	l, err := net.Listen("unix", path)
//	if err != nil {
//		return err
//	}
//	return criserver.New(runtime, criserver.Options{}).Serve(ctx, l)
//
// Optional capabilities of package cri are found by assertion when the server is made. A call that needs one
// that is not there answers Unimplemented. Two are made up for: without a [cri.StatusReporter] the runtime is
// ready, and without a [cri.Inspector] a status is taken from the list.
//
// List calls filter by ID, state, labels and sandbox. Wherever the ID of a sandbox or container is wanted, the beginning
// of it is enough, as crictl's users type it, if no other begins so; an ID in full is always itself. A call with what
// several begin with is InvalidArgument and says how many; a filter with it is one that nothing passes. An ID that the
// server has not seen costs a list of the runtime.
//
// Checkpoints, metrics and the stream variants of the list calls are Unimplemented, verbose information
// is not given, and UpdateRuntimeConfig (the pod CIDR) is accepted and ignored, as there is no network to set.
//
// # Events
//
// Every client of the event stream has a buffer of its own. One that falls behind by more than that gets what is
// in the buffer and then ResourceExhausted: it knows that it has missed something, and others are not held up.
//
// # Errors
//
// Errors of package cri become the gRPC codes they were made from, with the cause as the message. Any other error
// is Unknown, as containerd has it. A request without a part that the protocol requires is InvalidArgument.
package criserver
