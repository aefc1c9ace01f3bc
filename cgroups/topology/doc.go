// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package topology reads the hardware of a machine from sysfs: CPUs with their cores, sockets, NUMA nodes and last-level caches, and the memory and huge
// pages of each NUMA node. It reads the machine once and does not detect CPUs that are added or removed later.
//
//	machine, err := topology.Read(os.DirFS("/"))
//	if err != nil {
//		return err
//	}
//	fmt.Println(len(machine.CPUs), "CPUs on", len(machine.Nodes), "NUMA nodes")
//
// # Concurrency
//
// [Read] and [Parse] keep no reference to the [Machine] that they return. Callers that share a Machine must not change it. A [CPUSet] is a value, which
// only Add and UnmarshalText change.
//
// # Errors
//
// The package has no error types. [Read] documents the files that may be missing. For any other missing or invalid file the error has its name, and wraps the
// error of the file system, if there is one, such as [fs.ErrNotExist].
//
// Source: the package sysinfo of cadvisor, with which the kubelet reads the machine, and Documentation/ABI/stable/sysfs-devices-node and
// sysfs-devices-system-cpu of the kernel.
//
// Test kit: [Parse], which returns a machine from a line of text.
package topology
