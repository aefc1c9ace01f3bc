// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package kubelet gets this file by the overlay of package conformance. It exports functions that compute the status of a pod.
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

// ConformancePhase returns the phase of pod that the kubelet computes from the statuses of its containers. It calls
// getPhase, where terminal is named podIsTerminal and initialized is named podHasInitialized.
func ConformancePhase(ctx context.Context, pod *v1.Pod, statuses []v1.ContainerStatus, terminal, initialized bool) v1.PodPhase {
	return getPhase(klog.FromContext(ctx), pod, statuses, terminal, initialized)
}

// ConformanceGrace returns the grace period in seconds with which the kubelet terminates pod if it is deleted now.
func ConformanceGrace(pod *v1.Pod) int64 {
	seconds, _ := calculateEffectiveGracePeriod(&podSyncStatus{}, pod, nil)
	return seconds
}

// ConformanceStatus has the inputs from which the kubelet computes the status of a pod.
type ConformanceStatus struct {
	Pod               *v1.Pod
	Seen              *kubecontainer.PodStatus
	Previous          v1.PodStatus
	RecursiveReadOnly bool // the runtime supports it

	reasons *ReasonCache
}

// Fail records that a container could not be started, with the reason and message of the error.
func (s *ConformanceStatus) Fail(name, reason, message string) {
	if s.reasons == nil {
		s.reasons = NewReasonCache()
	}
	s.reasons.add(s.Pod.UID, name, errors.New(reason), message)
}

// Status returns the status that the kubelet computes for s.Pod, without phase and conditions. The containers must not have
// probes.
func (s *ConformanceStatus) Status(ctx context.Context) *v1.PodStatus {
	kl := &Kubelet{
		reasonCache:         s.reasons,
		containerManager:    cm.NewStubContainerManager(),
		runtimeClassManager: &runtimeclass.Manager{}, // not used for the default runtime class
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
