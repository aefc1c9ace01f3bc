// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package subpath bind-mounts a part of a volume, the subPath of a volume mount, safely: a container that changes the volume
// concurrently cannot redirect it to another path of the host. It mounts no volumes, and expands no variables.
//
//	path, err := subpath.Prepare(ctx, subpath.Request{
//		Volume:  "/var/lib/agent/pods/1/volumes/kubernetes.io~empty-dir/data",
//		SubPath: "db/current",
//		Target:  "/var/lib/agent/pods/1/volume-subpaths/data/postgres/0",
//	})
//	...
//	err = subpath.Clean(ctx, "/var/lib/agent/pods/1/volume-subpaths/data")
//
// # Model
//
// A container may replace any directory of its volume by a symbolic link. So Prepare opens the path once, without leaving the
// volume. It then bind-mounts the open file descriptor at a target in the directory of the pod, which no container can access.
// The container runtime mounts the target.
//
// Symbolic links are followed as long as they stay in the volume, including absolute links to the path of the volume on the host.
// Missing directories are created with the mode of the root of the volume.
//
// # Concurrency
//
// Both functions may be called from several goroutines, for different targets. They block while the file system of the volume
// hangs, and check the context between system calls.
//
// # Errors
//
// An [*Error] is shown in the pod status. It has the subPath, but no path of the host, and does not reveal whether a path outside
// of the volume exists. [ErrInvalid] and [ErrOutside] are final; other errors may be retried.
//
// # Differs from the kubelet
//
// The model is pkg/volume/util/subpath/subpath_linux.go of Kubernetes 1.37. A path that leaves the volume and returns is refused.
// DIFFERENCES.md lists all differences.
//
// Test kit: none; the tests of the package show how to create a mount namespace.
package subpath
