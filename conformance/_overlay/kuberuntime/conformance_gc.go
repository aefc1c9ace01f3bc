// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kuberuntime

import (
	"go.opentelemetry.io/otel/trace/noop"
	"k8s.io/apimachinery/pkg/types"
)

// ConformancePods has two functions of a pod UID. Content reports whether the content of the pod may be removed, and Runtime
// whether its sandboxes and containers may be removed.
type ConformancePods struct{ Content, Runtime func(uid types.UID) bool }

// IsPodTerminationRequested returns false, because the garbage collection never calls it.
func (p ConformancePods) IsPodTerminationRequested(types.UID) bool { return false }

// ShouldPodContentBeRemoved reports whether the content of a pod may be removed, by a call of p.Content.
func (p ConformancePods) ShouldPodContentBeRemoved(uid types.UID) bool { return p.Content(uid) }

// ShouldPodRuntimeBeRemoved reports whether the sandboxes and containers of a pod may be removed, by a call of p.Runtime.
func (p ConformancePods) ShouldPodRuntimeBeRemoved(uid types.UID) bool { return p.Runtime(uid) }

// ConformanceGC replaces the container garbage collection of manager. The replacement calls pods to decide which pods may be
// removed.
func ConformanceGC(manager KubeGenericRuntime, pods ConformancePods) {
	m := manager.(*kubeGenericRuntimeManager)
	m.podStateProvider = pods
	m.containerGC = newContainerGC(m.runtimeService, pods, m, noop.NewTracerProvider().Tracer(""))
}
