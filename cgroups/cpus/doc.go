// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package cpus chooses the exclusive CPUs of a container, as the static policy of the kubelet's CPU manager does. It decides only: it reads no files,
// keeps no state, and writes no cpuset.
//
//	machine, err := topology.Read(os.DirFS("/"))
//	if err != nil {
//		return err
//	}
//	layout, err := cpus.NewLayout(machine)
//	if err != nil {
//		return err
//	}
//	taken, err := layout.Take(machine.Set(), 4, cpus.Options{})
//	if err != nil {
//		return err // fewer than 4 CPUs are free
//	}
//	fmt.Println("cpuset.cpus:", taken)
//
// # Concurrency
//
// A [Layout] is immutable.
//
// # Errors
//
// Errors of [Layout.Take] have the kubelet's texts, which are in the message of a rejected pod. [NewLayout] names the CPU that is wrong.
//
// # Differences from the kubelet
//
// On machines whose cores and sockets have equal sizes and up to four NUMA nodes, the CPUs are those that the kubelet takes. DIFFERENCES.md lists the
// differences on other machines: there, the kubelet may take CPUs that are not free, take too few, or search without end.
//
// Test kit: [topology.Parse], which returns a machine from a line of text.
package cpus
