// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kuberuntime

import (
	"go.opentelemetry.io/otel/trace/noop"
	"k8s.io/apimachinery/pkg/types"
)

// ConformancePods reports, for a pod UID, whether the content of the pod, and whether its sandboxes and containers, may be
// removed.
type ConformancePods struct{ Content, Runtime func(uid types.UID) bool }

// IsPodTerminationRequested returns false. The garbage collection never calls it.
func (p ConformancePods) IsPodTerminationRequested(types.UID) bool { return false }

// ShouldPodContentBeRemoved calls p.Content with uid.
func (p ConformancePods) ShouldPodContentBeRemoved(uid types.UID) bool { return p.Content(uid) }

// ShouldPodRuntimeBeRemoved calls p.Runtime with uid.
func (p ConformancePods) ShouldPodRuntimeBeRemoved(uid types.UID) bool { return p.Runtime(uid) }

// ConformanceGC makes the container garbage collection of manager use pods as the state of the pods.
func ConformanceGC(manager KubeGenericRuntime, pods ConformancePods) {
	m := manager.(*kubeGenericRuntimeManager)
	m.podStateProvider = pods
	m.containerGC = newContainerGC(m.runtimeService, pods, m, noop.NewTracerProvider().Tracer(""))
}
