// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package poddir owns what an agent keeps on disk for each pod: the record of what neither the spec nor the runtime tells,
// the hosts file and the files of termination messages that containers have mounted, and the logs with the links to them.
//
// # Model
//
// A [Dir] is one directory below the agent's root, named by the UID of the pod. Its record.json makes it an agent's own:
// what has none is never touched. [Claim] makes the root one agent's. A [Recorder] keeps the [Record] in memory and in that
// file. [Logs] are below a root of their own, where the tools of a node look for them.
//
//	dir := poddir.Of(root, uid)
//	record := poddir.NewRecorder(dir, "default/web")
//	err := record.Load()
//	path, err := dir.MakeMessageFile("web", attempt) // which the container is given
//	message := dir.Message(ctx, container)           // when it has exited
//
// What belongs here: every path below the directory of a pod, how it is written and how it is read. What does not: when it is
// written or removed, which the caller decides.
//
// Below a root that is claimed there are 16 spare files of 32 KiB. On a disk that is full to the last block, or has no inode left, they
// become the records of pods that are evicted or have terminated, of which the next agent has to know.
//
// # Concurrency
//
// A Recorder may be used from any goroutine. Calls about one Dir or Logs must not overlap.
//
// # Errors
//
// What comes from a runtime or a container is hostile. A name that would lead out of the directory has no path. A file is
// opened only if it is a regular one, and a link below the directory, or below the logs, does not lead out of them: what a
// container has put there is replaced where an agent writes, and is nothing where it reads. A termination message and a
// record are read up to a limit. After a record that cannot be read, which is an error, nothing is known.
//
// # Test kit
//
// A Dir, a Recorder and Logs below testing.T.TempDir. What a container may do to their files is in hostile_linux_test.go.
package poddir
