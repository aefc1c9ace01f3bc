// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package fsgroup changes the group of the files of a volume to the fsGroup of a pod, and their modes, so that containers with
// different users can share the volume. It mounts no volumes, and does not decide which volumes need it.
//
//	err := fsgroup.Apply(ctx, "/var/lib/agent/pods/1/volumes/kubernetes.io~csi/data/mount", 2000, fsgroup.Options{
//		Policy:     fsgroup.OnRootMismatch,
//		ReportSlow: func(files int) { log.Print("still changing the group: ", files) },
//	})
//
// # Model
//
// All files and directories of the volume get the group. Permissions are added to their modes: 0660 for files, 2770 for
// directories; in a read-only volume 0440 and 2550. Symbolic links get the group, and are not followed. Files that are already
// correct are not changed. The root directory is changed last. So with [OnRootMismatch], a correct root means that the volume is
// complete, even if an earlier run was interrupted.
//
// Containers may change the volume concurrently. Where another user may write to a directory, a file is opened before it is
// changed, so that replacing the file by a symbolic link has no effect on other files.
//
// # Concurrency
//
// Apply changes several files at a time, with goroutines that end before it returns. It checks the context between files. If the
// file system hangs, Apply hangs too. ReportSlow is called from the goroutine of Apply.
//
// # Errors
//
// A [*FilesError] means that some files could not be changed, such as on an NFS server that refuses it, and all other files were.
// The kubelet logs this error and continues. After any other error, such as for an unreadable directory, the root directory is
// unchanged.
//
// # Differs from the kubelet
//
// The model is pkg/volume/volume_linux.go of Kubernetes 1.37. DIFFERENCES.md lists all differences, with this one:
//
//   - File systems that are mounted inside the volume are not changed. The kubelet changes them too.
//
// Test kit: none is needed. Call Apply on a directory below testing.T.TempDir, with the group of the test.
package fsgroup
