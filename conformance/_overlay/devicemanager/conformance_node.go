// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"context"
	"path/filepath"

	cadvisorapi "github.com/google/cadvisor/lib/model"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"k8s.io/kubernetes/pkg/kubelet/checkpointmanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/resourceupdates"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
)

// ConformanceNode is a device manager and a topology manager, with plugins in memory or on sockets.
type ConformanceNode struct {
	Active []*v1.Pod // admitted pods that have not terminated

	dir      string                  // of the checkpoint
	memory   *conformanceCheckpoints // of a node without dir
	numa     []cadvisorapi.Node
	topology topologymanager.Manager
	manager  *ManagerImpl
	sockets  bool // plugins register on a socket
	counts   *ConformanceCounts
}

// ConformancePlugin is a plugin that answers its calls in memory.
type ConformancePlugin struct {
	pluginapi.DevicePluginClient // only the methods below are called
	Name, Socket                 string

	Prefer   func(available, mustInclude []string, size int) []string // nil: the plugin does not offer it
	Response func(ids []string) (*pluginapi.ContainerAllocateResponse, error)
}

// NewConformanceNode returns a node with this topology policy and scope, which keeps its checkpoint in dir.
func NewConformanceNode(dir string, numaNodes int, policy, scope string) (*ConformanceNode, error) {
	return newConformanceNode(&ConformanceNode{dir: dir}, numaNodes, policy, scope)
}

func newConformanceNode(n *ConformanceNode, numaNodes int, policy, scope string) (*ConformanceNode, error) {
	for i := range numaNodes {
		n.numa = append(n.numa, cadvisorapi.Node{Id: i})
	}
	var err error
	if n.topology, err = topologymanager.NewManager(klog.Logger{}, n.numa, policy, scope, nil); err != nil {
		return nil, err
	}
	return n, n.start()
}

// Restart replaces the device manager by one that reads the checkpoint.
func (n *ConformanceNode) Restart(policy, scope string) (err error) {
	if n.topology, err = topologymanager.NewManager(klog.Logger{}, n.numa, policy, scope, nil); err != nil {
		return err
	}
	return n.start()
}

func (n *ConformanceNode) start() error {
	if n.sockets {
		return n.startServer()
	}
	checkpoints, err := checkpointmanager.NewCheckpointManager(n.dir)
	if err != nil {
		return err
	}
	return n.startManager(checkpoints)
}

// startManager starts a device manager that reads and writes these checkpoints.
func (n *ConformanceNode) startManager(checkpoints checkpointmanager.CheckpointManager) error {
	n.manager = &ManagerImpl{
		checkpointdir: n.dir, checkpointManager: checkpoints, endpoints: map[string]endpointInfo{}, endpointStore: map[string]map[string]*endpointInfo{},
		allDevices: NewResourceDeviceInstances(), healthyDevices: map[string]sets.Set[string]{}, unhealthyDevices: map[string]sets.Set[string]{},
		allocatedDevices: map[string]sets.Set[string]{}, podDevices: newPodDevices(), topologyAffinityStore: n.topology,
		devicesToReuse: PodReusableDevices{}, update: make(chan resourceupdates.Update, 100), sourcesReady: &sourcesReadyStub{},
		activePods: func() []*v1.Pod { return n.Active },
	}
	for i := range n.numa {
		n.manager.numaNodes = append(n.manager.numaNodes, i)
	}
	n.topology.AddHintProvider(klog.Logger{}, n.manager)
	return n.manager.readCheckpoint(klog.Logger{})
}

// CheckpointFile returns the path of the checkpoint.
func (n *ConformanceNode) CheckpointFile() string {
	return filepath.Join(n.dir, kubeletDeviceManagerCheckpoint)
}

// Connect connects a plugin.
func (n *ConformanceNode) Connect(ctx context.Context, p *ConformancePlugin) error {
	return n.manager.PluginConnected(ctx, p.Name, p)
}

// Disconnect disconnects a plugin.
func (n *ConformanceNode) Disconnect(p *ConformancePlugin) {
	n.manager.PluginDisconnected(klog.Logger{}, p.Name, p.Socket)
}

// List replaces the devices of a plugin's resource.
func (n *ConformanceNode) List(p *ConformancePlugin, devices []*pluginapi.Device) {
	n.manager.PluginListAndWatchReceiver(klog.Logger{}, p.Name, &pluginapi.ListAndWatchResponse{Devices: devices})
}

// Admit admits a pod. A refused pod loses what it was given before the refusal.
func (n *ConformanceNode) Admit(ctx context.Context, pod *v1.Pod) (reason, message string) {
	n.Active = append(n.Active, pod)
	result := n.topology.Admit(ctx, &lifecycle.PodAdmitAttributes{Pod: pod, Operation: lifecycle.AddOperation})
	if !result.Admit {
		n.Remove(string(pod.UID))
	}
	return result.Reason, result.Message
}

// Remove removes a pod that has terminated.
func (n *ConformanceNode) Remove(uid string) {
	var active []*v1.Pod
	for _, pod := range n.Active {
		if string(pod.UID) != uid {
			active = append(active, pod)
		}
	}
	n.Active = active
	n.manager.UpdateAllocatedDevices(klog.Logger{})
}

// Devices returns the sorted IDs of what a container holds, by resource.
func (n *ConformanceNode) Devices(uid, container string) map[string][]string {
	held := map[string][]string{}
	for name, devices := range n.manager.podDevices.getContainerDevices(uid, container) {
		held[name] = sets.List(sets.KeySet(devices))
	}
	return held
}

// Capacity returns capacity and allocatable of each resource, and the resources that were removed.
func (n *ConformanceNode) Capacity() (capacity, allocatable v1.ResourceList, removed []string) {
	return n.manager.GetCapacity(klog.Logger{})
}

// RunOptions returns what the config of a container gets.
func (n *ConformanceNode) RunOptions(ctx context.Context, pod *v1.Pod, container *v1.Container) (*DeviceRunContainerOptions, error) {
	return n.manager.GetDeviceRunContainerOptions(ctx, pod, container)
}

// API, Resource and SocketPath implement the kubelet's interface of a connected plugin.
func (p *ConformancePlugin) API() pluginapi.DevicePluginClient { return p }

// Resource returns the name of the resource.
func (p *ConformancePlugin) Resource() string { return p.Name }

// SocketPath returns the path of the socket.
func (p *ConformancePlugin) SocketPath() string { return p.Socket }

// GetDevicePluginOptions returns whether Prefer is set.
func (p *ConformancePlugin) GetDevicePluginOptions(context.Context, *pluginapi.Empty, ...grpc.CallOption) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{GetPreferredAllocationAvailable: p.Prefer != nil}, nil
}

// GetPreferredAllocation calls Prefer.
func (p *ConformancePlugin) GetPreferredAllocation(_ context.Context, r *pluginapi.PreferredAllocationRequest, _ ...grpc.CallOption) (*pluginapi.PreferredAllocationResponse, error) {
	response := &pluginapi.PreferredAllocationResponse{}
	for _, c := range r.GetContainerRequests() {
		ids := p.Prefer(c.GetAvailableDeviceIDs(), c.GetMustIncludeDeviceIDs(), int(c.GetAllocationSize()))
		response.ContainerResponses = append(response.ContainerResponses, &pluginapi.ContainerPreferredAllocationResponse{DeviceIDs: ids})
	}
	return response, nil
}

// Allocate calls Response.
func (p *ConformancePlugin) Allocate(_ context.Context, r *pluginapi.AllocateRequest, _ ...grpc.CallOption) (*pluginapi.AllocateResponse, error) {
	response := &pluginapi.AllocateResponse{}
	for _, c := range r.GetContainerRequests() {
		answer, err := p.Response(c.GetDevicesIds())
		if err != nil {
			return nil, err
		}
		response.ContainerResponses = append(response.ContainerResponses, answer)
	}
	return response, nil
}
