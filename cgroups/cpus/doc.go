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
//	taken, err := layout.Take(machine.Set(), 4, cpus.Options{WholeCores: true})
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
//   - A CPU that is not free is never taken. The kubelet takes whole sockets by their average size, also if a larger one is partly used.
//   - A distribution over NUMA nodes is kept as it was rated; in the kubelet, from 5 nodes on, a later one may overwrite a part of it.
//   - A distribution of whole cores ends on nodes with an odd number of free CPUs; in the kubelet it may not.
//   - From about 13 NUMA nodes on, the fullest nodes are taken instead of trying all combinations, whose number grows exponentially.
//
// Test kit: [topology.Parse], which returns a machine from a line of text.
package cpus
