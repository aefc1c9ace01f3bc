// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package machine reads what a machine is: its IDs, operating system, CPUs, memory and huge pages. It does not measure what is in use,
// which is package stats's, and does not know how large a disk is.
//
// # Model
//
// [Read] takes the root directory of the machine as a file system, so that a test and an agent in a container read another one:
//
//	info, err := machine.Read(os.DirFS("/"))
//
// # Concurrency
//
// Nothing is kept.
//
// # Errors
//
// What cannot be read is not known in the answer, and an error names its file; the rest is there. Files and directories are read up to
// a limit, and what is not a regular file is not opened.
//
// # Differs from the kubelet
//
// The model is lib/machine of cAdvisor 0.60. DIFFERENCES.md has the whole list.
//
//   - A file that cannot be read costs what is in it; cAdvisor then knows nothing of the machine.
//
// # When not to use it
//
// For the size of pods' CPUs and memory: package podtree has what a node may give them.
//
// Test kit: none is needed, as a file system can be a testing/fstest.MapFS.
package machine
