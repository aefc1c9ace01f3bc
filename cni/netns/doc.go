// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package netns makes network namespaces that last: each is pinned by a mount in a directory, so that it is there
// without a process in it. It configures nothing in them but the loopback interface, which is up.
//
// # Model
//
//	dir := netns.New("/run/agent/netns")
//	path, err := dir.Create("web") // what a CNI plugin, or setns, gets
//	err = netns.Do(path, func() error { return listen() })
//	err = dir.Remove("web")
//
// A directory belongs to one program. It is bound over itself once, before anything is mounted in it, and is shared:
// a namespace that is removed is removed from copies of the mount table as well, and nobody else's bind mount of the
// directory hides what is in it. That is what `ip netns add` does with /run/netns, which is why a directory below that
// one is a bad choice.
//
// A program that is killed leaves a name that [Dir.Names] returns, with or without a namespace: [Dir.Remove] takes both.
//
// # Concurrency
//
// All methods may be called from anywhere, for different names at the same time.
//
// # Errors
//
// An error is an [*Error] with the operation and the path. On systems other than Linux all operations fail with
// [errors.ErrUnsupported].
//
// # What belongs in it
//
// Namespaces as such. What is in them is for CNI plugins, and what is known about them for package cni.
//
// Test kit: none; a test as root runs in namespaces of its own, as those of this package do.
package netns
