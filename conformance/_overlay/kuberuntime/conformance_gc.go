// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kuberuntime

import (
	"go.opentelemetry.io/otel/trace/noop"
	"k8s.io/apimachinery/pkg/types"
)

// ConformancePods says how pods are: what the pod workers of a kubelet know.
type ConformancePods struct{ Content, Runtime func(uid types.UID) bool }

// IsPodTerminationRequested is not asked by a garbage collection.
func (p ConformancePods) IsPodTerminationRequested(types.UID) bool { return false }

// ShouldPodContentBeRemoved returns what Content does.
func (p ConformancePods) ShouldPodContentBeRemoved(uid types.UID) bool { return p.Content(uid) }

// ShouldPodRuntimeBeRemoved returns what Runtime does.
func (p ConformancePods) ShouldPodRuntimeBeRemoved(uid types.UID) bool { return p.Runtime(uid) }

// ConformanceGC has a manager collect the garbage of pods of which that is known.
func ConformanceGC(manager KubeGenericRuntime, pods ConformancePods) {
	m := manager.(*kubeGenericRuntimeManager)
	m.podStateProvider = pods
	m.containerGC = newContainerGC(m.runtimeService, pods, m, noop.NewTracerProvider().Tracer(""))
}
