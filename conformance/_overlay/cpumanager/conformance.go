// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package cpumanager gets this file by the overlay of package conformance. It exports the choice of exclusive CPUs of the static policy.
package cpumanager

import (
	"k8s.io/klog/v2"
	"k8s.io/utils/cpuset"

	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/topology"
)

// ConformanceTake returns count of the available CPUs, as the static policy with these options takes them.
func ConformanceTake(machine *topology.CPUTopology, available cpuset.CPUSet, count int, options StaticPolicyOptions) (cpuset.CPUSet, error) {
	policy := &staticPolicy{topology: machine, options: options, cpuGroupSize: machine.CPUsPerCore()}
	return policy.takeByTopology(klog.Logger{}, available, count)
}
