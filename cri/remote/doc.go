// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package remote is a client of the CRI v1 gRPC protocol on a unix socket, as served by containerd and CRI-O. Its only state is
// the connection. It repeats no calls and starts no runtime.
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
// # Model
//
// A [Client] implements [cri.Runtime], [cri.Images], [cri.Puller] and every optional capability of package cri except
// [cri.SessionRunner]: for sessions it returns a URL of the runtime. A call that the runtime does not implement fails with
// [errors.ErrUnsupported]. Lists omit the fields that package cri marks "detail"; SandboxStatus and ContainerStatus return them.
//
// The package contains calls, deadlines and the connection. Package internal/cripb converts messages, and package criserver is
// the server.
//
// # Time limits
//
// Each call ends with its context or after its time limit, whichever comes first. The limits are those of the kubelet
// (k8s.io/cri-client): [Options.Timeout] for most calls and twice that for RunPodSandbox. StopContainer adds its grace period,
// and ExecSync its timeout. PullImage, ExecSync without a timeout, and the event stream have no limit.
//
// # Concurrency
//
// All methods may be called concurrently. Dial connects lazily, and the connection recovers by itself: it retries after 100 ms,
// then with back-off up to 3 s. Calls meanwhile fail at once with [cri.ErrUnavailable]. DNS, proxies and environment variables
// are not used.
//
// # Errors
//
// Errors are [*cri.Error] values that match the errors of package cri. Their text is the message of the runtime. A reserved name
// is [cri.ErrAlreadyExists] even if the runtime reports it only in the message. A response without a required field is an error,
// as in the kubelet.
//
// # Differs from the kubelet
//
// - A list of more than 16 MiB is [cri.ErrTooLarge]: the streaming list calls (KEP-5825, alpha) are not used.
// - Grace periods and timeouts are rounded up to whole seconds; the kubelet truncates them.
//
// DIFFERENCES.md lists all differences.
//
// Test kit: package critest is a runtime in memory; package criserver serves it on a socket for tests of this client.
package remote
