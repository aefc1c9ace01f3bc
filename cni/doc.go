// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package cni sets up and tears down the network of pod sandboxes with CNI plugins, as container runtimes do. It runs installed
// plugins; it configures no network itself except for the loopback interface, and contains no plugin.
//
//	pods, err := cni.Open("/var/lib/agent/cni", cni.Options{NetnsDir: "/run/agent/netns"})
//	err = pods.Retain(ctx, sandboxes)                                      // at the start: the sandboxes of the runtime
//	status, err := pods.Setup(ctx, cni.Pod{SandboxID: id, Namespace: "default", Name: "web"})
//	start(status.Netns, status.IPs)
//	err = pods.Teardown(ctx, id)
//
// # Model
//
// [Pods] manages sandboxes: each has a network namespace, which is pinned by a mount in a directory ([package netns]), and an
// interface for each network. [Plugins] is the layer below, with a method for each CNI command on one container and one
// [Network]. [Dir] reads the networks of a node from configuration files.
//
// # Configuration
//
// Configuration files are found as in containerd and CRI-O: .conflist, .conf and .json files in lexical order. The first one is
// the network of pods, unless [Options] names another. A bad file is skipped and reported by [Pods.Config] with its name and
// field. The directory is read at each use, which costs less than a hundredth of an ADD, so no watch is needed. Plugins get the
// whole configuration, including unknown keys.
//
// # State on disk
//
// Before the first plugin of a sandbox runs, a record is written with the configuration, the arguments and the capabilities that
// the plugins get. DEL and CHECK use the record, even if the files have changed. Results are in libcni's own cache beside it.
// Records may contain secrets of configurations, so only the user of the agent can read the directory.
//
// A failed set-up is undone. If the agent is killed during a set-up, [Pods.Retain] tears down the remaining record and namespace.
// For plugins that support garbage collection (CNI 1.1.0), Retain calls GC.
//
// # Misbehaving plugins
//
// Each command has a deadline ([Timeouts]), at which the plugin is killed with its process group. A child process outside of the
// group that keeps the output open delays the call by a second at most. More than 1 MiB of output kills the plugin. Results are
// checked: the number of entries and each address.
//
// # Concurrency
//
// All methods may be called from any goroutine. Calls for one sandbox are serialized, calls for different sandboxes are not.
// [Pods.Ready] waits for no other call. During the garbage collection of a network, set-ups in that network wait. No goroutine
// remains when a call returns.
//
// # Errors
//
// An [*Error] has the command, network, interface, sandbox and the code of the plugin's error. A [*FileError] names a
// configuration file. [ErrNoNetwork] means that the network of pods is not configured yet. Errors contain neither configurations
// nor the standard output of plugins, except for the message of a CNI error.
//
// # Differs from the kubelet
//
// The kubelet runs no plugins since 1.24: the models are containerd 2.4 and CRI-O. DIFFERENCES.md has all differences, mainly:
//
// - The loopback interface is brought up before the first plugin, without the loopback plugin.
// - A pod is attached to several networks in sequence, and a failure detaches it from all.
// - A bad configuration file is skipped, including names, versions and plugin types that every ADD would reject.
// - Records and results are in a directory of their own, not below /var/lib/cni.
// Test kit: none; use the runtime of package critest.
//
// [package netns]: https://pkg.go.dev/github.com/seed81659283/nodeagent/cni/netns
package cni
