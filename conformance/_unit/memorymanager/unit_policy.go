// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package memorymanager gets the files of this directory by the overlay of the kubelet's unit tests. The static policy calls package numa.
package memorymanager

import (
	"context"
	"errors"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm/admission"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/kubernetes/pkg/kubelet/metrics"

	"github.com/seed81659283/nodeagent/cgroups/numa"
	"github.com/seed81659283/nodeagent/device"
)

// The numbers of calls of numa.Policy.
var unitRestores, unitReserves, unitPodReserves, unitReleases, unitHintCalls, unitPodHintCalls atomic.Int64 //nolint:gochecknoglobals // the kubelet creates the policies, so that no value of the tests can hold the number

func (p *staticPolicy) Start(logger klog.Logger, s state.State) error {
	unitRestores.Add(1)
	policy := unitPolicy(unitMachine(p.machineInfo), p.systemReserved)
	restored, err := policy.Restore(numa.Saved{Policy: numa.PolicyStatic, Nodes: unitNodes(s.GetMachineState()), Pods: unitBlocks(s)})
	if err == nil && len(s.GetMachineState()) == 0 {
		s.SetMachineState(unitKubeletNodes(policy.Nodes(restored.State)))
	}
	return err
}

func (p *staticPolicy) Allocate(ctx context.Context, s state.State, pod *v1.Pod, container *v1.Container, operation lifecycle.Operation) error {
	if operation != lifecycle.AddOperation {
		return p.kubeletAllocate(ctx, s, pod, container, operation)
	}
	unitReserves.Add(1)
	ours, err := unitPod(pod)
	if err != nil {
		return err
	}
	affinity := unitAffinity(p.affinity.GetAffinity(klog.FromContext(ctx), string(pod.UID), container.Name))
	policy, before := unitState(s)
	after, err := policy.Reserve(before, ours, unitContainer(ours, container), affinity)
	if err != nil {
		return errors.New(err.Error())
	}
	unitStore(s, policy, before, after)
	return nil
}

// AllocatePod reserves the memory of a pod that has none: a pod with memory keeps it, and the kubelet allocates again.
func (p *staticPolicy) AllocatePod(logger klog.Logger, s state.State, pod *v1.Pod, operation lifecycle.Operation) error {
	if operation != lifecycle.AddOperation {
		return p.kubeletAllocatePod(logger, s, pod, operation)
	}
	unitPodReserves.Add(1)
	ours, err := unitPod(pod)
	if err != nil {
		return err
	}
	affinity := unitAffinity(p.affinity.GetAffinity(logger, string(pod.UID), ours.Containers[0].Name))
	policy, before := unitState(s)
	after, err := policy.ReservePod(before, ours, affinity)
	unitRecord(policy.PodPinnings(before, after, ours, err))
	if refusal := (*numa.Refusal)(nil); errors.As(err, &refusal) && refusal.Reason == device.ReasonEmptyPodSharedPoolError {
		return admission.NewEmptyPodSharedPoolError(errors.New(refusal.Message))
	}
	if err != nil {
		return errors.New(err.Error())
	}
	unitStore(s, policy, before, after)
	return nil
}

// unitRecord adds the outcomes of the reservation of a pod to the kubelet's metrics.
func unitRecord(pinnings []numa.Pinning) {
	for _, p := range pinnings {
		if p.Err != nil {
			metrics.ResourceManagerAllocationErrorsTotal.WithLabelValues(metrics.ResourceManagerMemory, metrics.ResourceManagerPod).Inc()
			continue
		}
		kind := metrics.ResourceManagerExclusivePod
		if p.Share == device.SharedOfPod {
			kind = metrics.ResourceManagerSharedPod
		}
		metrics.ResourceManagerAllocationsTotal.WithLabelValues(metrics.ResourceManagerMemory, metrics.ResourceManagerPod).Inc()
		metrics.ResourceManagerContainerAssignments.WithLabelValues(metrics.ResourceManagerMemory, kind).Inc()
	}
}

func (p *staticPolicy) RemoveContainer(logger klog.Logger, s state.State, podUID string, containerName string) {
	unitReleases.Add(1)
	policy, before := unitState(s)
	unitStore(s, policy, before, policy.ReleaseContainer(before, podUID, containerName))
}

func (p *staticPolicy) GetTopologyHints(logger klog.Logger, s state.State, pod *v1.Pod, container *v1.Container, operation lifecycle.Operation) map[string][]topologymanager.TopologyHint {
	if operation != lifecycle.AddOperation {
		return p.kubeletGetTopologyHints(logger, s, pod, container, operation)
	}
	unitHintCalls.Add(1)
	ours, err := unitPod(pod)
	if err != nil {
		return nil
	}
	requested, err := getContainerRequestedResources(logger, pod, container)
	if err != nil {
		return nil
	}
	policy, current := unitState(s)
	return unitHints(policy.Hints(current, ours, unitContainer(ours, container)), requested)
}

func (p *staticPolicy) GetPodTopologyHints(logger klog.Logger, s state.State, pod *v1.Pod, operation lifecycle.Operation) map[string][]topologymanager.TopologyHint {
	if operation != lifecycle.AddOperation {
		return p.kubeletGetPodTopologyHints(logger, s, pod, operation)
	}
	unitPodHintCalls.Add(1)
	ours, err := unitPod(pod)
	if err != nil {
		return nil
	}
	requested, err := getPodRequestedResources(logger, pod)
	if err != nil {
		return nil
	}
	policy, current := unitState(s)
	return unitHints(policy.PodHints(current, ours), requested)
}
