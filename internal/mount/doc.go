// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package mount mounts, looks and unmounts by system calls, and never by mount(8): a bind of a path or of a descriptor, a
// tmpfs, a hugetlbfs, the attributes of a mount, a tree that is shared. It formats no disk and knows no network file
// system.
//
// # Model
//
// What is mounted appears on its target with its attributes, in one step, where the kernel has open_tree, mount_setattr
// and move_mount (Linux 5.12); before that a bind is without them for a moment. The last element of a target is never
// followed as a link. The elements before it are, so that the directory of a target belongs to the agent.
//
//	err := mount.Tmpfs("/var/lib/agent/pods/1/volumes/cache", mount.TmpfsOptions{Size: 64 << 20, NoSwap: true})
//	...
//	err = unmounter.Unmount(ctx, "/var/lib/agent/pods/1/volumes/cache")
//
// # Servers that do not answer
//
// A file system whose server is gone keeps whoever asks it for anything. [IsMountPoint] and [Table] do not ask.
// [Unmounter] does, on a goroutine of its own, forces what does not answer, then detaches it, and returns in bounded time;
// [Unmounter.Pending] names what the kernel has still not given back.
//
// # Concurrency
//
// The functions may be called from any number of goroutines, and act in the mount namespace of their thread. An
// [Unmounter] may be used from several; there is one for each owner of mounts, and it is not copied.
//
// # Errors
//
// An [*Error] has the operation, the path and what the kernel said. On systems other than Linux that is
// errors.ErrUnsupported.
//
// What belongs here: a system call about mounts, with what it needs to be safe on old kernels and dead servers. What does
// not: which volume is mounted where.
//
// Test kit: package mounttest.
package mount
