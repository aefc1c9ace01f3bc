// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package cpus gets this file by the overlay of the kubelet's unit tests. It exports what these tests call in the kubelet.
package cpus

import "github.com/seed81659283/nodeagent/cgroups/topology"

// UnitUnreserved returns the policy that reserves no CPU, which only tests of the kubelet have.
func (p *Policy) UnitUnreserved() *Policy {
	unreserved := *p
	unreserved.reserved, unreserved.reservedCores = topology.CPUSet{}, topology.CPUSet{}
	return &unreserved
}

// UnitCount returns the number of exclusive CPUs of container i of a pod. podLevel is Gates.PodLevel.
func UnitCount(podLevel bool, pod *Pod, i int) int {
	return (&Policy{podLevel: podLevel}).countCPUs(pod, i)
}

// UnitPeak returns the number of exclusive CPUs of a pod.
func UnitPeak(podLevel bool, pod *Pod) int { return (&Policy{podLevel: podLevel}).countPeak(pod) }
