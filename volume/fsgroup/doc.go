// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package fsgroup gives the files of a volume to the group of a pod, its fsGroup, so that containers that run as different
// users can use them. It mounts nothing, and does not decide which volumes get a group.
//
// # Model
//
// Every entry of the volume gets the group. In addition to the permissions that it has, a file gets those of mode 0660 and
// a directory those of 2770; in a read-only volume it is 0440 and 2550. Links get the group themselves and are not followed.
// What is right already is not written to. The root of the volume comes last: with [OnRootMismatch] a root that is right
// means that all of it is, also after a walk that was interrupted.
//
//	err := fsgroup.Apply(ctx, "/var/lib/agent/pods/1/volumes/kubernetes.io~csi/data/mount", 2000, fsgroup.Options{
//		Policy: fsgroup.OnRootMismatch,
//		Slow:   func(files int) { log.Print("still changing the group: ", files) },
//	})
//
// Containers may be changing the volume at the same time. A file is opened before it is changed where others may write to
// its directory, so that a file that is replaced by a link meanwhile leads nowhere.
//
// # Concurrency
//
// Apply changes several files at a time, on goroutines that have ended when it returns. It looks at the context between
// files; a file system that does not answer keeps it for as long. Slow is called from the goroutine of Apply.
//
// # Errors
//
// A [*FilesError] says that single files could not be changed, as on a server that gives no files away, and that all else
// is done; the kubelet logs that and goes on. Any other error, such as a directory that cannot be read, has left the root
// as it was.
//
// # Differs from the kubelet
//
// The model is pkg/volume/volume_linux.go of Kubernetes 1.37.
//
//   - What is mounted in the volume is left alone; the kubelet walks into it.
//
// DIFFERENCES.md has all differences.
//
// What belongs here: modes and groups of a tree. What does not: SELinux labels, users, and which volumes support groups.
//
// Test kit: Apply on a directory below testing.T.TempDir, with the group of the test.
package fsgroup
