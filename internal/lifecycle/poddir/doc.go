// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package poddir manages the files that an agent keeps for each pod: the persistent record of the pod, its hosts file, its
// termination message files and its logs. It does not decide when a file is written or removed.
//
// # Model
//
// A [Dir] is the directory of one pod below the root directory of the agent, named by the pod UID. [LockRoot] reserves the root
// for one agent. A [Recorder] keeps the [Record] of a pod in memory and in record.json; a directory without record.json is not
// from an agent and is never removed. [Logs] have a root directory of their own.
//
//	dir := poddir.DirOf(root, uid)
//	record := poddir.NewRecorder(dir, "default/web")
//	err := record.Load()
//	path, err := dir.CreateMessageFile("web", attempt) // mounted into the container
//	message := dir.ReadMessage(ctx, container)         // after it has exited
//
// A locked root has 16 spare files of 32 KiB. If the disk has no free block or inode, a spare file becomes the record of an
// evicted or terminated pod, so that a restarted agent does not run the pod again.
//
// # Concurrency
//
// A Recorder is safe for concurrent use. Calls for one Dir or one Logs must not overlap.
//
// # Errors
//
// Names from the runtime and files written by containers are not trusted. A name that would escape the directory has no path.
// Only regular files are opened, and symbolic links cannot escape the directory or the logs. The agent replaces other files where
// it writes, and ignores them where it reads. Records and termination messages are read up to a limit. If [Recorder.Load] returns
// an error, the record is empty.
//
// # Test kit
//
// Tests use a Dir, a Recorder and Logs below testing.T.TempDir. hostile_linux_test.go lists the attacks of a container on its
// files.
package poddir
