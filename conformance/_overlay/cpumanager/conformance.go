// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package cpumanager gets this file by the overlay of package conformance. It exports the choice of exclusive CPUs of the static policy, and
// starts a manager without files.
package cpumanager

import (
	"k8s.io/klog/v2"
	"k8s.io/utils/cpuset"

	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/topology"
	"k8s.io/kubernetes/pkg/kubelet/config"
)

// ConformanceTake returns count of the available CPUs, as the static policy with these options takes them.
func ConformanceTake(machine *topology.CPUTopology, available cpuset.CPUSet, count int, options StaticPolicyOptions) (cpuset.CPUSet, error) {
	policy := &staticPolicy{topology: machine, options: options, cpuGroupSize: machine.CPUsPerCore()}
	return policy.takeByTopology(klog.Logger{}, available, count)
}

// ConformanceStart starts a manager with this state, as Start does with the state of a file, but without its loop.
func ConformanceStart(m Manager, s state.State, activePods ActivePodsFunc, sources config.SourcesReady) error {
	impl := m.(*manager)
	impl.state, impl.activePods, impl.sourcesReady, impl.containerMap = s, activePods, sources, containermap.NewContainerMap()
	return impl.policy.Start(klog.Logger{}, s)
}

// ConformanceClean frees the CPUs of pods that are not active, as the manager does in its loop.
func ConformanceClean(m Manager) { m.(*manager).removeStaleState(klog.Logger{}) }
