// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package machine reads facts about a machine: its IDs, operating system, CPUs, memory and huge pages. It does not measure usage, which
// package stats does.
//
//	info, err := machine.Read(os.DirFS("/"))
//	if err != nil {
//		log.Warn("machine is partly unknown", "error", err)
//	}
//	fmt.Println(info.CPUs, info.Memory, info.BootID)
//
// [Read] takes the root directory of the machine as an fs.FS, so that an agent in a container can pass the root directory of its host.
// [Host] reads the machine of this program, with the size of its disk.
//
// # Concurrency
//
// The package has no state. All functions may be called from any goroutine.
//
// # Errors
//
// A value that cannot be read is zero, and the error names its file; all other values are valid. Files and directories are read up to a
// limit, and only regular files are opened.
//
// # Differs from the kubelet
//
// The model is lib/machine of cAdvisor 0.60. DIFFERENCES.md has the whole list.
//
//   - A file that cannot be read affects its own values only; cAdvisor then returns no machine info.
//
// Test kit: none is needed; a file system can be a testing/fstest.MapFS.
package machine
