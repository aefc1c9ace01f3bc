// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package mount mounts and unmounts by system calls, without mount(8): bind mounts, tmpfs, hugetlbfs and block devices. It also
// reads the mount table. It formats no disk and mounts no network file system.
//
// # Model
//
// A mount appears on its target together with its attributes if the kernel has open_tree, mount_setattr and move_mount (Linux
// 5.12). On older kernels a bind mount lacks them for a moment. The last element of a target is never followed as a symbolic
// link. The elements before it are, so only the agent may be able to write to the parent directories.
//
//	err := mount.Tmpfs("/var/lib/agent/pods/1/volumes/cache", mount.TmpfsOptions{Size: 64 << 20, NoSwap: true})
//	...
//	err = unmounter.Unmount(ctx, "/var/lib/agent/pods/1/volumes/cache")
//
// # Hung servers
//
// A system call about a file system whose server is unavailable may hang. [IsMountPoint] and [ReadTable] do not access the file
// system. [Unmounter] calls the kernel in a goroutine, and returns in bounded time: it forces the unmount, and finally detaches
// the mount. [Unmounter.Pending] lists the calls that have not returned.
//
// # Concurrency
//
// All functions are safe for concurrent use and act in the mount namespace of the calling thread. An [Unmounter] is safe for
// concurrent use. Each owner of mounts has one, and it must not be copied.
//
// # Errors
//
// An [*Error] has the operation, the path and the error of the kernel; on systems other than Linux errors.ErrUnsupported.
//
// Test kit: package mounttest.
package mount
