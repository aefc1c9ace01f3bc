// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package netns creates network namespaces that exist without a process: each is pinned by a mount on a file in a directory. It
// configures only the loopback interface, which is up.
//
//	dir := netns.New("/run/agent/netns")
//	path, err := dir.Create("web") // for a CNI plugin or setns
//	err = netns.Do(path, func() error { return listen() })
//	err = dir.Remove("web")
//
// # Model
//
// A directory belongs to one program. Before the first namespace it is bind-mounted onto itself and made shared. A removed
// namespace then also disappears from copies of the mount table, and no other bind mount of the directory can hide the
// namespaces. `ip netns add` does the same with /run/netns; therefore do not use a directory below that one.
//
// If a program is killed, its files remain, with or without a namespace. [Dir.Names] returns them, and [Dir.Remove] removes both.
//
// # Concurrency
//
// All methods may be called from any goroutine, concurrently for different names.
//
// # Errors
//
// An [*Error] has the operation and the path. On systems other than Linux all operations fail with [errors.ErrUnsupported].
//
// Test kit: none. A test that runs as root can create namespaces of its own.
package netns
