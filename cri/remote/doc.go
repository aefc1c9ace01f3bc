// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package remote is a container runtime at the other end of a unix socket: a client for the CRI v1 gRPC protocol
// as containerd and CRI-O serve it. It keeps no state of its own beyond the connection, repeats no call and
// starts no runtime.
//
// # Model
//
// A [Client] is a [cri.Runtime] and also has [cri.Images], [cri.Puller] and every optional capability of package
// cri. What the runtime behind it lacks fails with [errors.ErrUnsupported] when it is called.
//
//	client, err := remote.Dial("unix:///run/containerd/containerd.sock", remote.Options{})
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//	if err := client.Check(ctx); err != nil {
//		return err // names the socket and what to look at
//	}
//	snapshot, err := client.List(ctx)
//
// Lists lack the fields that package cri marks "detail"; SandboxStatus and ContainerStatus have them.
//
// # Time limits
//
// Each call ends with its context or after a time limit of its own, whichever is first. The limits are those of
// the kubelet (k8s.io/cri-client): [Options.Timeout] for most calls, twice that for RunPodSandbox, the grace
// period or the command's timeout on top for StopContainer and ExecSync, none for PullImage, for an ExecSync
// without a timeout and for the event stream.
//
// # Connection
//
// Dial connects lazily and the connection recovers by itself: after a failure it tries again after 100 ms,
// then ever more slowly up to every 3 s. Calls do not wait for that; they fail with [cri.ErrUnavailable] at
// once. Neither DNS nor proxies nor the environment play a part.
//
// # Errors
//
// Errors are [*cri.Error] values; see package cri for what [errors.Is] finds in them. Their text is the
// runtime's own message. A name that is still reserved is [cri.ErrAlreadyExists] also where the runtime says
// so in words only. An answer that lacks a required field is an error, as for the kubelet.
//
// # Differs from the kubelet
//
// The stream variants of the list calls (KEP-5825, alpha) are not used: an answer of more than 16 MiB is an
// error. A status without a time of creation is taken, as containerd has none for a sandbox that it was killed in the
// middle of making; the kubelet refuses it and never replaces that sandbox. Grace periods and timeouts are rounded
// up to whole seconds; the kubelet truncates them.
package remote
