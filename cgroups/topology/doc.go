// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package topology reads from sysfs what a machine is made of: CPUs with their cores, sockets, NUMA nodes and last-level caches, and the memory and huge
// pages of each NUMA node. It reads the machine once and does not see CPUs that come or go later.
//
//	machine, err := topology.Read(os.DirFS("/"))
//	if err != nil {
//		return err
//	}
//	fmt.Println(len(machine.CPUs), "CPUs on", len(machine.Nodes), "NUMA nodes")
//
// [Parse] returns a machine that is described in words, such as "2 sockets 2 nodes 4 cores 2 threads", for tests and simulations.
//
// # Concurrency
//
// A [Machine] is not changed after [Read] and [Parse] have returned it. A [CPUSet] is a value.
//
// # Errors
//
// Read returns an error that names the file and its content. A file that older kernels or other architectures lack is no error; see [Read].
//
// Source: the package sysinfo of cadvisor, and Documentation/ABI/stable/sysfs-devices-node and sysfs-devices-system-cpu of the kernel.
//
// Test kit: [Parse].
package topology
