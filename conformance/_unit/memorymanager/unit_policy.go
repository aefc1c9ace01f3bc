// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package memorymanager gets the files of this directory by the overlay of the kubelet's unit tests. The static policy calls package numa.
package memorymanager

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"

	"github.com/seed81659283/nodeagent/cgroups/numa"
	"github.com/seed81659283/nodeagent/device"
)

// The numbers of calls of numa.Policy.
var unitRestores, unitReserves, unitReleases, unitHintCalls, unitPodHintCalls atomic.Int64 //nolint:gochecknoglobals // the kubelet creates the policies, so that no value of the tests can hold the number

// unitLacks reports whether a pod needs the gate PodLevelResourceManagers, which is off by default. Our policy does not implement it, and the kubelet's
// function runs. The runner counts the tests with the printed line.
func unitLacks(isPodLevel bool) bool {
	isPodLevel = isPodLevel && utilfeature.DefaultFeatureGate.Enabled(features.PodLevelResourceManagers)
	if isPodLevel {
		fmt.Print("\nnodeagent lacks: PodLevelResourceManagers\n")
	}
	return isPodLevel
}

func (p *staticPolicy) Start(logger klog.Logger, s state.State) error {
	for uid := range s.GetMemoryAssignments() {
		if unitLacks(len(s.GetPodMemoryBlocks(uid)) > 0) {
			return p.kubeletStart(logger, s)
		}
	}
	unitRestores.Add(1)
	policy := unitPolicy(unitMachine(p.machineInfo), p.systemReserved)
	restored, err := policy.Restore(numa.Saved{Policy: numa.PolicyStatic, Nodes: unitNodes(s.GetMachineState()), Pods: unitBlocks(s.GetMemoryAssignments())})
	if err == nil && len(s.GetMachineState()) == 0 {
		s.SetMachineState(unitKubeletNodes(policy.Nodes(restored.State)))
	}
	return err
}

func (p *staticPolicy) Allocate(ctx context.Context, s state.State, pod *v1.Pod, container *v1.Container, operation lifecycle.Operation) error {
	if operation != lifecycle.AddOperation || unitLacks(resourcehelper.IsPodLevelResourcesSet(pod)) {
		return p.kubeletAllocate(ctx, s, pod, container, operation)
	}
	unitReserves.Add(1)
	ours, err := unitPod(pod)
	if err != nil {
		return err
	}
	hint := p.affinity.GetAffinity(klog.FromContext(ctx), string(pod.UID), container.Name)
	affinity := device.Hint{Preferred: hint.Preferred}
	if hint.NUMANodeAffinity != nil {
		affinity.Nodes = unitMask(hint.NUMANodeAffinity.GetBits())
	}
	policy, before := unitState(s)
	after, err := policy.Reserve(before, ours, unitContainer(ours, container), affinity)
	if err != nil {
		return errors.New(err.Error())
	}
	unitStore(s, policy, before, after)
	return nil
}

func (p *staticPolicy) RemoveContainer(logger klog.Logger, s state.State, podUID string, containerName string) {
	if unitLacks(len(s.GetPodMemoryBlocks(podUID)) > 0) {
		p.kubeletRemoveContainer(logger, s, podUID, containerName)
		return
	}
	unitReleases.Add(1)
	policy, before := unitState(s)
	unitStore(s, policy, before, policy.ReleaseContainer(before, podUID, containerName))
}

func (p *staticPolicy) GetTopologyHints(logger klog.Logger, s state.State, pod *v1.Pod, container *v1.Container, operation lifecycle.Operation) map[string][]topologymanager.TopologyHint {
	if operation != lifecycle.AddOperation || unitLacks(resourcehelper.IsPodLevelResourcesSet(pod)) {
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
	if operation != lifecycle.AddOperation || unitLacks(resourcehelper.IsPodLevelResourcesSet(pod)) {
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
