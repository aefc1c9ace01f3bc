// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package memorymanager gets this file by the overlay of package conformance. It starts a manager without files.
package memorymanager

import (
	"k8s.io/klog/v2"

	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager/state"
	"k8s.io/kubernetes/pkg/kubelet/config"
)

// ConformanceStart starts a manager with this state, as Start does with the state of a file.
func ConformanceStart(m Manager, s state.State, activePods ActivePodsFunc, sources config.SourcesReady) error {
	impl := m.(*manager)
	impl.state, impl.activePods, impl.sourcesReady, impl.containerMap = s, activePods, sources, containermap.NewContainerMap()
	return impl.policy.Start(klog.Logger{}, s)
}

// ConformanceClean frees the memory of pods that are not active, as the manager does before each admission.
func ConformanceClean(m Manager) { m.(*manager).removeStaleState(klog.Logger{}) }
