// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package kubelet gets this file by way of the overlay: it opens what the package finds out about a pod.
package kubelet

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/prober"
	proberesults "k8s.io/kubernetes/pkg/kubelet/prober/results"
	"k8s.io/kubernetes/pkg/kubelet/runtimeclass"
)

// ConformancePhase sums up the statuses of the containers of a pod.
func ConformancePhase(ctx context.Context, pod *v1.Pod, statuses []v1.ContainerStatus, terminal, initialized bool) v1.PodPhase {
	return getPhase(klog.FromContext(ctx), pod, statuses, terminal, initialized)
}

// ConformanceGrace is how many seconds a pod gets that is deleted now.
func ConformanceGrace(pod *v1.Pod) int64 {
	seconds, _ := calculateEffectiveGracePeriod(&podSyncStatus{}, pod, nil)
	return seconds
}

// ConformanceStatus is what the statuses of containers are made from.
type ConformanceStatus struct {
	Pod               *v1.Pod
	Seen              *kubecontainer.PodStatus
	Previous          v1.PodStatus
	RecursiveReadOnly bool // the runtime can do that

	reasons *ReasonCache
}

// Fail notes why a container could not be started.
func (s *ConformanceStatus) Fail(name, reason, message string) {
	if s.reasons == nil {
		s.reasons = NewReasonCache()
	}
	s.reasons.add(s.Pod.UID, name, errors.New(reason), message)
}

// Status returns a status that is made up but for its phase and conditions. The containers must not have probes.
func (s *ConformanceStatus) Status(ctx context.Context) *v1.PodStatus {
	kl := &Kubelet{
		reasonCache:         s.reasons,
		containerManager:    cm.NewStubContainerManager(),
		runtimeClassManager: &runtimeclass.Manager{}, // which is not asked about the default class
		runtimeState:        newRuntimeState(0),
		probeManager:        prober.NewManager(nil, nil, proberesults.NewManager(), proberesults.NewManager(), nil, nil),
	}
	if kl.reasonCache == nil {
		kl.reasonCache = NewReasonCache()
	}
	kl.runtimeState.setRuntimeHandlers([]kubecontainer.RuntimeHandler{{SupportsRecursiveReadOnlyMounts: s.RecursiveReadOnly}})
	st := kl.convertStatusToAPIStatus(ctx, s.Pod, s.Seen, s.Previous)
	kl.probeManager.UpdatePodStatus(ctx, s.Pod, st)
	return st
}
