// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package remote is a client for the CRI v1 gRPC protocol on a unix socket, as containerd and CRI-O serve it. It keeps no
// state besides the connection, repeats no call and starts no runtime.
//
// # Model
//
// A [Client] is a [cri.Runtime] and also has [cri.Images], [cri.Puller] and every optional capability of package cri
// but [cri.SessionRunner]: of sessions it returns the URL. A call that the runtime does not implement fails with
// [errors.ErrUnsupported].
//
//	client, err := remote.Dial("unix:///run/containerd/containerd.sock", remote.Options{})
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//	if err := client.Check(ctx); err != nil {
//		return err // names the socket and what to check
//	}
//	snapshot, err := client.List(ctx)
//
// Lists lack the fields that package cri marks "detail"; SandboxStatus and ContainerStatus have them.
//
// What belongs here: calls, deadlines and the connection. What does not: the conversion of messages (internal/cripb) and
// the server (package criserver).
//
// # Time limits
//
// Each call ends with its context or after a time limit of its own, whichever is first. The limits are those of the
// kubelet (k8s.io/cri-client): [Options.Timeout] for most calls, twice that for RunPodSandbox; StopContainer has its grace
// period and ExecSync its timeout on top. PullImage, an ExecSync without a timeout and the event stream have no limit.
//
// # Concurrency
//
// All methods may be called from many goroutines. Dial connects lazily, and the connection recovers by itself: after a
// failure it is tried again after 100 ms, then less and less often, up to every 3 s. Calls do not wait for that; they fail
// with [cri.ErrUnavailable] at once. DNS, proxies and environment variables are not used.
//
// # Errors
//
// Errors are [*cri.Error] values; see package cri for what [errors.Is] finds in them. Their text is the message of the
// runtime. A name that is still reserved is [cri.ErrAlreadyExists] also where the runtime says so in the message only. An
// answer that lacks a required field is an error, as in the kubelet.
//
// # Differs from the kubelet
//
//   - A list of more than 16 MiB is [cri.ErrTooLarge]: the stream variants of the list calls (KEP-5825, alpha) are not used.
//   - Grace periods and timeouts are rounded up to whole seconds; the kubelet truncates them.
//
// All are in DIFFERENCES.md.
//
// Test kit: package critest is a runtime in memory; package criserver serves it on a socket for tests of this client.
package remote
