// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package cpumanager gets the files of this directory by the overlay of the kubelet's unit tests. The static policy calls package cpus.
package cpumanager

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/cm/admission"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/topology"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager/bitmask"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/kubernetes/pkg/kubelet/metrics"
	"k8s.io/utils/cpuset"

	"github.com/seed81659283/nodeagent/cgroups/cpus"
	ourtopology "github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/device"
)

// The numbers of calls of cpus.Policy and cpus.Pod.
var unitNews, unitRestores, unitReserves, unitPodReserves, unitRetains, unitHintCalls, unitPodHintCalls, unitCounts atomic.Int64 //nolint:gochecknoglobals // the kubelet creates the policies, so that no value of the tests can hold the number

// unitConfig returns the configuration of a policy with exactly the behaviour of the kubelet.
func unitConfig(p *staticPolicy) cpus.Config {
	return cpus.Config{
		Policy: cpus.PolicyStatic, Options: unitPolicyOptions(p.options), Topology: unitTopologyPolicy(p.affinity),
		Gates:        cpus.Gates{AlphaOptions: true, PodLevel: unitGate()},
		ReservedCPUs: unitSet(p.reservedCPUs), Kubelet: cpus.Kubelet{EmptyPool: true, RefuseChanged: true, RefuseRunning: true},
	}
}

// unitPolicy returns our policy of the kubelet's configuration.
func unitPolicy(p *staticPolicy) *cpus.Policy { return unitPolicyOn(p, unitMachine(p.topology)) }

// unitPolicyOn returns our policy of the kubelet's configuration on a machine.
func unitPolicyOn(p *staticPolicy, machine *ourtopology.Machine) *cpus.Policy {
	config := unitConfig(p)
	isUnreserved := config.ReservedCPUs.IsEmpty()
	if isUnreserved {
		config.ReservedCPUs = ourtopology.NewCPUSet(machine.CPUs[0].ID)
	}
	policy, err := cpus.NewPolicy(machine, config)
	if err != nil {
		panic(err)
	}
	if isUnreserved {
		policy = policy.UnitUnreserved()
	}
	return policy
}

// NewStaticPolicy returns the kubelet's policy with the reserved CPUs of cpus.NewPolicy, or the error of cpus.NewPolicy.
func NewStaticPolicy(logger klog.Logger, topology *topology.CPUTopology, numReservedCPUs int, reservedCPUs cpuset.CPUSet, affinity topologymanager.Store, cpuPolicyOptions map[string]string) (Policy, error) {
	kubelet, err := kubeletNewStaticPolicy(logger, topology, numReservedCPUs, reservedCPUs, affinity, cpuPolicyOptions)
	if numReservedCPUs == 0 || topology == nil { // no configuration of a kubelet
		return kubelet, err
	}
	unitNews.Add(1)
	config := cpus.Config{
		Policy: cpus.PolicyStatic, Options: cpuPolicyOptions, Topology: unitTopologyPolicy(affinity), ReservedMillis: int64(numReservedCPUs) * 1000, ReservedCPUs: unitSet(reservedCPUs),
		Gates: cpus.Gates{AlphaOptions: unitAllows(DistributeCPUsAcrossCoresOption), NoBetaOptions: !unitAllows(DistributeCPUsAcrossNUMAOption)},
	}
	ours, ourErr := cpus.NewPolicy(unitMachine(topology), config)
	if ourErr != nil {
		return nil, cmp.Or(errors.Unwrap(ourErr), ourErr)
	}
	if err != nil {
		return nil, fmt.Errorf("the kubelet's policy has an error and ours has none: %w", err)
	}
	policy := kubelet.(*staticPolicy)
	policy.reservedCPUs = unitKubeletSet(ours.Reserved())
	return policy, nil
}

// unitAllows reports whether the gate of an option is on.
func unitAllows(option string) bool { return CheckPolicyOptionAvailable(option) == nil }

func (p *staticPolicy) Start(logger klog.Logger, s state.State) error {
	unitRestores.Add(1)
	before := unitState(s)
	after, _, err := unitPolicy(p).Restore(before)
	if err != nil {
		return err
	}
	unitStore(s, before, after)
	p.initializeMetrics(logger, s)
	return nil
}

func (p *staticPolicy) Allocate(logger klog.Logger, s state.State, pod *v1.Pod, container *v1.Container, operation lifecycle.Operation) error {
	if operation != lifecycle.AddOperation {
		return p.kubeletAllocate(logger, s, pod, container, operation)
	}
	unitReserves.Add(1)
	before, ours := unitState(s), unitPod(pod)
	affinity := p.affinity.GetAffinity(logger, string(pod.UID), container.Name)
	after, err := unitPolicy(p).ReserveContainer(before, ours, unitContainer(ours, container), unitAffinity(affinity.NUMANodeAffinity))
	if err != nil {
		return unitError(err)
	}
	unitStore(s, before, after)
	return nil
}

// AllocatePod reserves the CPUs of a pod that has none: a pod with CPUs keeps these, and the kubelet allocates again.
func (p *staticPolicy) AllocatePod(logger klog.Logger, s state.State, pod *v1.Pod, operation lifecycle.Operation) error {
	if operation != lifecycle.AddOperation {
		return p.kubeletAllocatePod(logger, s, pod, operation)
	}
	unitPodReserves.Add(1)
	before, ours := unitState(s), unitPod(pod)
	affinity := p.affinity.GetAffinity(logger, string(pod.UID), ours.Containers[0].Name)
	policy := unitPolicy(p)
	after, err := policy.ReservePod(before, ours, unitAffinity(affinity.NUMANodeAffinity))
	unitRecord(policy.PodPinnings(before, after, ours, err))
	if err != nil {
		return unitError(err)
	}
	unitStore(s, before, after)
	return nil
}

func (p *staticPolicy) allocateCPUs(logger klog.Logger, s state.State, numCPUs int, numaAffinity bitmask.BitMask, reusableCPUs cpuset.CPUSet) (topology.Allocation, error) {
	if !reusableCPUs.IsEmpty() || p.options.FullPhysicalCPUsOnly {
		return p.kubeletAllocateCPUs(logger, s, numCPUs, numaAffinity, reusableCPUs)
	}
	unitReserves.Add(1)
	before := unitState(s)
	pod := &cpus.Pod{UID: "nodeagent", Guaranteed: true, Containers: []cpus.Container{{Name: "nodeagent", Millis: int64(numCPUs) * 1000}}}
	after, err := unitPolicy(p).ReserveContainer(before, pod, 0, unitAffinity(numaAffinity))
	if err != nil {
		return topology.EmptyAllocation(), unitError(err)
	}
	taken := unitKubeletSet(after.Assigned[pod.UID]["nodeagent"])
	s.SetDefaultCPUSet(unitKubeletSet(after.Shared))
	return topology.Allocation{CPUs: taken, Aligned: p.topology.CheckAlignment(taken)}, nil
}

// RemoveContainer removes a container on the machine that has the CPUs of the state: some tests of the kubelet have states that lack a CPU.
func (p *staticPolicy) RemoveContainer(logger klog.Logger, s state.State, podUID string, containerName string) error {
	unitRetains.Add(1)
	before, machine := unitState(s), unitMachine(p.topology)
	known := before.Shared.Union(unitSet(p.reservedCPUs))
	for _, containers := range before.Assigned {
		for _, set := range containers {
			known = known.Union(set)
		}
	}
	machine.CPUs = slices.DeleteFunc(machine.CPUs, func(c ourtopology.CPU) bool { return !known.Has(c.ID) })
	after := unitPolicyOn(p, machine).Retain(before, func(uid, name string) bool { return uid != podUID || name != containerName })
	unitStore(s, before, after)
	return nil
}

func (p *staticPolicy) GetTopologyHints(logger klog.Logger, s state.State, pod *v1.Pod, container *v1.Container, operation lifecycle.Operation) map[string][]topologymanager.TopologyHint {
	if operation != lifecycle.AddOperation {
		return p.kubeletGetTopologyHints(logger, s, pod, container, operation)
	}
	unitHintCalls.Add(1)
	ours := unitPod(pod)
	return unitHints(unitPolicy(p).Hints(unitState(s), ours, unitContainer(ours, container)))
}

func (p *staticPolicy) GetPodTopologyHints(logger klog.Logger, s state.State, pod *v1.Pod, operation lifecycle.Operation) map[string][]topologymanager.TopologyHint {
	if operation != lifecycle.AddOperation {
		return p.kubeletGetPodTopologyHints(logger, s, pod, operation)
	}
	unitPodHintCalls.Add(1)
	return unitHints(unitPolicy(p).PodHints(unitState(s), unitPod(pod)))
}

func (p *staticPolicy) guaranteedCPUs(logger klog.Logger, pod *v1.Pod, container *v1.Container) int {
	if unitIsUngated(pod) {
		return p.kubeletGuaranteedCPUs(logger, pod, container)
	}
	unitCounts.Add(1)
	ours := unitPod(pod)
	return cpus.UnitCount(unitGate(), ours, unitContainer(ours, container))
}

func (p *staticPolicy) podGuaranteedCPUs(logger klog.Logger, pod *v1.Pod) int {
	if unitIsUngated(pod) {
		return p.kubeletPodGuaranteedCPUs(logger, pod)
	}
	unitCounts.Add(1)
	return cpus.UnitPeak(unitGate(), unitPod(pod))
}

// unitIsUngated reports whether a pod has pod-level resources, and their gate is off. The kubelet counts its CPUs, and then gives it none.
func unitIsUngated(pod *v1.Pod) bool {
	return resourcehelper.IsPodLevelResourcesSet(pod) && !unitGate()
}

// unitGate reports whether the gate PodLevelResourceManagers is on.
func unitGate() bool {
	return utilfeature.DefaultFeatureGate.Enabled(features.PodLevelResourceManagers)
}

// unitRecord adds the outcomes of the reservation of a pod to the kubelet's metrics.
func unitRecord(pinnings []cpus.Pinning) {
	for _, p := range pinnings {
		if p.Err != nil {
			metrics.ResourceManagerAllocationErrorsTotal.WithLabelValues(metrics.ResourceManagerCPU, metrics.ResourceManagerPod).Inc()
			continue
		}
		kind := metrics.ResourceManagerExclusivePod
		if p.Share == device.SharedOfPod {
			kind = metrics.ResourceManagerSharedPod
		}
		metrics.ResourceManagerAllocationsTotal.WithLabelValues(metrics.ResourceManagerCPU, metrics.ResourceManagerPod).Inc()
		metrics.ResourceManagerContainerAssignments.WithLabelValues(metrics.ResourceManagerCPU, kind).Inc()
	}
}

// unitError returns the kubelet's error for a refusal.
func unitError(err error) error {
	refusal := (*device.Refusal)(nil)
	if !errors.As(err, &refusal) {
		return err
	}
	if refusal.Reason == device.ReasonEmptyPodSharedPoolError {
		return admission.NewEmptyPodSharedPoolError(refusal.Err)
	}
	if refusal.Reason != cpus.ReasonSMTAlignmentError {
		return errors.New(cmp.Or(refusal.Err, err).Error())
	}
	return unitSMTError(refusal.Message)
}

// unitSMTError returns the kubelet's error of a message.
func unitSMTError(message string) error {
	e := SMTAlignmentError{CausedByPhysicalCPUs: true}
	if _, err := fmt.Sscanf(message, "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = %d, requested CPUs = %d, CPUs per core = %d",
		&e.AvailablePhysicalCPUs, &e.RequestedCPUs, &e.CpusPerCore); err == nil {
		return e
	}
	e = SMTAlignmentError{}
	if _, err := fmt.Sscanf(message, "SMT Alignment Error: requested %d cpus not multiple cpus per core = %d", &e.RequestedCPUs, &e.CpusPerCore); err != nil {
		panic(err)
	}
	return e
}
