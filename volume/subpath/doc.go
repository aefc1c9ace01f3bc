// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package subpath makes a part of a volume, the subPath of a volume mount, available at a path that leads nowhere else,
// whatever a container does in the volume meanwhile. It mounts no volume, and expands no variables.
//
// # Model
//
// A container may replace any directory of its volume by a link. So the path is opened once, without leaving the volume,
// and what was opened, not its name, is bound to a target in the pod's own directory, which no container sees. The runtime
// is given the target.
//
//	path, err := subpath.Prepare(ctx, subpath.Request{
//		Volume:  "/var/lib/agent/pods/1/volumes/kubernetes.io~empty-dir/data",
//		SubPath: "db/current",
//		Target:  "/var/lib/agent/pods/1/volume-subpaths/data/postgres/0",
//	})
//	...
//	err = subpath.Clean(ctx, "/var/lib/agent/pods/1/volume-subpaths/data")
//
// Links in the volume are followed as long as they stay in it, links to an absolute path of the volume on the host
// included. A directory that is missing is made, element by element, with the mode of the root of the volume.
//
// # Concurrency
//
// Both functions may be called from several goroutines, for different targets. They block as long as the file system of
// the volume does, and look at the context between system calls.
//
// # Errors
//
// An [*Error] is for the user of the pod: it has the subPath, and never a path of the host, nor whether there is anything
// outside of the volume. [ErrInvalid] and [ErrOutside] are final; others may be tried again.
//
// # Differs from the kubelet
//
// The model is pkg/volume/util/subpath/subpath_linux.go of Kubernetes 1.37. A path that leaves the volume and comes back is
// refused. DIFFERENCES.md has all differences.
//
// What belongs here: the way from a volume to a bind, and back. What does not: which volume mount has which target, and
// whether it is read-only, which is the runtime's.
//
// Test kit: none; the tests show how to get a mount namespace.
package subpath
