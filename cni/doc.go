// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package cni sets up and tears down the network of pod sandboxes with CNI plugins, as container runtimes do. It runs the
// plugins that are there; it moves no packet itself, and brings no plugin.
//
// # Model
//
// [Pods] is for whoever runs sandboxes. A sandbox gets a network namespace, which is pinned in a directory ([package netns]),
// and in it an interface of each network:
//
//	pods, err := cni.Open("/var/lib/agent/cni", cni.Options{NetnsDir: "/run/agent/netns"})
//	err = pods.Retain(ctx, sandboxes)                                      // at the start: what the runtime has
//	status, err := pods.Setup(ctx, cni.Pod{SandboxID: id, Namespace: "default", Name: "web"})
//	start(status.Netns, status.IPs)
//	err = pods.Teardown(ctx, id)
//
// [Plugins] is the layer below: a method for each command of the CNI, for one container and one [Network]. [Dir] reads the
// networks of a node from its configuration files.
//
// # Configuration
//
// Files are found as containerd and CRI-O find them: .conflist, .conf and .json in lexical order, and the first is the
// network of pods unless [Options] names another one. A bad file is a problem that [Pods.Config] returns, with its name and
// the field, and hides no good one. The directory is read anew at each use, which costs less than a hundredth of an ADD.
// So a directory that is removed and comes back is followed, and nothing has to be watched. A configuration goes to its
// plugins whole, with keys that nobody here knows.
//
// # What is on disk
//
// A record for each sandbox is written before its first plugin runs, with the configuration, the arguments and what the
// plugins were told. DEL and CHECK use the record, whatever the files say by then. Results are in libcni's own cache beside
// it. The records hold configurations, which may hold secrets: the directory is readable by its user alone.
//
// A set-up that fails is undone. An agent that is killed in the middle of one leaves a record, a namespace or both, and
// [Pods.Retain] tears them down. The plugins of today implement no garbage collection, so that this is the only way; where
// plugins can collect garbage (version 1.1.0), Retain has them do it as well.
//
// # Plugins that misbehave
//
// Each command has a deadline ([Timeouts]). At its end the plugin is killed with its process group. A child that leaves the
// group and has the output open is waited for a second, and no longer. An output of more than 1 MiB ends the plugin. A
// result is checked before it is used: for the number of its entries, and for each address.
//
// # Concurrency
//
// All methods may be called from anywhere. Calls for one sandbox wait for each other, calls for different ones do not, and
// [Pods.Ready] waits for no other call: a plugin that hangs delays its pod. While the plugins of a network collect garbage,
// set-ups that need the network wait, at most for the deadline. No goroutine stays when a call returns.
//
// # Errors
//
// An [*Error] names command, network, interface and sandbox, and has the code of the plugin's error. A [*FileError] names
// a configuration file. [ErrNoNetwork] is a network that is not configured yet. No error repeats a configuration or what
// a plugin prints to its standard output; a plugin's error message and the end of its standard error are its own affair.
//
// # What belongs in it
//
// What happens between a runtime and its plugins. Network policies, services and addresses are for plugins; which pods are
// on the host's network is for the runtime, which does not call this package for them.
//
// # Differs from the kubelet
//
// The kubelet runs no plugins since 1.24: the model are containerd 2.4 (go-cni) and CRI-O (ocicni). DIFFERENCES.md has the
// whole list. What a user has to know:
//
//   - The loopback interface is brought up before the first plugin, without the loopback plugin.
//   - A pod is attached to several networks one after the other, and a failure detaches it from all.
//   - A bad file is left out, and a network with a name, a version or a plugin type that no ADD could use is bad.
//   - Records and results are in a directory of their own, not below /var/lib/cni.
//
// # Test kit
//
// Test kit: none. An interface of one method at the caller, or a runtime in memory (package critest), keeps tests away from plugins.
//
// [package netns]: https://pkg.go.dev/github.com/seed81659283/nodeagent/cni/netns
package cni
