// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package devicemanager gets this file by the overlay of package conformance. It exports the choice of devices and the topology hints of the
// device manager for one resource and one container.
package devicemanager

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/checkpoint"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
)

// The pod, container and resource of a ConformanceRequest.
const (
	ConformancePodUID    = "u"
	ConformanceContainer = "c"
	ConformanceResource  = "example.com/gpu"
)

// ConformanceRequest is a request for Count devices, and the state of the device manager.
type ConformanceRequest struct {
	Count                 int
	Devices               map[string]*pluginapi.Device
	InUse, Held, Reusable []string
	MachineNodes          []int
	Affinity              topologymanager.TopologyHint

	// Prefer answers GetPreferredAllocation; nil: the plugin does not offer it.
	Prefer func(available, mustInclude []string, size int) []string
}

// newManager returns a device manager with the state of r.
func (r *ConformanceRequest) newManager() *ManagerImpl {
	m := &ManagerImpl{
		endpoints: map[string]endpointInfo{ConformanceResource: {
			e: conformanceEndpoint{prefer: r.Prefer}, opts: &pluginapi.DevicePluginOptions{GetPreferredAllocationAvailable: r.Prefer != nil},
		}},
		activePods:            func() []*v1.Pod { return []*v1.Pod{{ObjectMeta: metav1.ObjectMeta{UID: ConformancePodUID}}} },
		sourcesReady:          &sourcesReadyStub{},
		allDevices:            ResourceDeviceInstances{ConformanceResource: r.Devices},
		healthyDevices:        map[string]sets.Set[string]{ConformanceResource: sets.New[string]()},
		allocatedDevices:      map[string]sets.Set[string]{ConformanceResource: sets.New(r.InUse...)},
		podDevices:            newPodDevices(),
		numaNodes:             r.MachineNodes,
		topologyAffinityStore: conformanceStore{hint: r.Affinity},
		devicesToReuse:        PodReusableDevices{ConformancePodUID: {ConformanceResource: sets.New(r.Reusable...)}},
	}
	for id, d := range r.Devices {
		if d.Health == pluginapi.Healthy {
			m.healthyDevices[ConformanceResource].Insert(id)
		}
	}
	if len(r.Held) > 0 {
		m.podDevices.insert(ConformancePodUID, ConformanceContainer, ConformanceResource, checkpoint.DevicesPerNUMA{0: r.Held}, &pluginapi.ContainerAllocateResponse{})
	}
	return m
}

// Prepared returns Hints and Pick for one device manager with the state of r, so that a benchmark does not measure the making of the state.
func (r *ConformanceRequest) Prepared() (hints func() []topologymanager.TopologyHint, pick func(context.Context) ([]string, error)) {
	m := r.newManager()
	return func() []topologymanager.TopologyHint { return r.hints(m) }, func(ctx context.Context) ([]string, error) {
		ids, err := m.devicesToAllocate(ctx, ConformancePodUID, ConformanceContainer, ConformanceResource, r.Count, sets.New(r.Reusable...))
		return sets.List(ids), err
	}
}

// Hints calls GetTopologyHints.
func (r *ConformanceRequest) Hints() []topologymanager.TopologyHint { return r.hints(r.newManager()) }

func (r *ConformanceRequest) hints(m *ManagerImpl) []topologymanager.TopologyHint {
	c := &v1.Container{Name: ConformanceContainer, Resources: v1.ResourceRequirements{
		Limits: v1.ResourceList{ConformanceResource: *resource.NewQuantity(int64(r.Count), resource.DecimalSI)},
	}}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(ConformancePodUID)}, Spec: v1.PodSpec{Containers: []v1.Container{*c}}}
	return m.GetTopologyHints(klog.Logger{}, pod, c, lifecycle.AddOperation)[ConformanceResource]
}

// Pick calls devicesToAllocate.
func (r *ConformanceRequest) Pick(ctx context.Context) ([]string, error) {
	ids, err := r.newManager().devicesToAllocate(ctx, ConformancePodUID, ConformanceContainer, ConformanceResource, r.Count, sets.New(r.Reusable...))
	return sets.List(ids), err
}

// conformanceEndpoint is a plugin that answers GetPreferredAllocation only.
type conformanceEndpoint struct {
	endpoint
	prefer func(available, mustInclude []string, size int) []string
}

func (e conformanceEndpoint) getPreferredAllocation(_ context.Context, available, mustInclude []string, size int) (*pluginapi.PreferredAllocationResponse, error) {
	return &pluginapi.PreferredAllocationResponse{ContainerResponses: []*pluginapi.ContainerPreferredAllocationResponse{
		{DeviceIDs: e.prefer(available, mustInclude, size)},
	}}, nil
}

// conformanceStore has one hint for all containers.
type conformanceStore struct {
	topologymanager.Store
	hint topologymanager.TopologyHint
}

func (s conformanceStore) GetAffinity(klog.Logger, string, string) topologymanager.TopologyHint {
	return s.hint
}
