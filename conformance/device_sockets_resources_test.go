// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	_ "unsafe" // for go:linkname

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	kubepodresources "k8s.io/kubernetes/pkg/kubelet/apis/podresources"
	_ "k8s.io/kubernetes/pkg/kubelet/cm" // has convertDevices
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"

	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/device/poddevice"
	"github.com/seed81659283/nodeagent/device/podresources"
)

// convertDevices is the kubelet's conversion of devices for the podresources API.
//
//go:linkname convertDevices k8s.io/kubernetes/pkg/kubelet/cm.containerDevicesFromResourceDeviceInstances
func convertDevices(devicemanager.ResourceDeviceInstances) []*podresourcesv1.ContainerDevices

// kubeletResources has the pods and devices of a node for the kubelet's podresources server. Its CPUs, memory and claims are empty.
type kubeletResources struct {
	node *devicemanager.ConformanceNode
}

func (r kubeletResources) GetActivePods() []*corev1.Pod { return r.node.Active }
func (r kubeletResources) GetPods() []*corev1.Pod       { return r.node.Active }

func (r kubeletResources) GetPodByName(namespace, name string) (*corev1.Pod, bool) {
	for _, pod := range r.node.Active {
		if pod.Namespace == namespace && pod.Name == name {
			return pod, true
		}
	}
	return nil, false
}

func (r kubeletResources) UpdateAllocatedDevices(logger klog.Logger) {
	r.node.Manager().UpdateAllocatedDevices(logger)
}

func (r kubeletResources) GetDevices(podUID, container string) []*podresourcesv1.ContainerDevices {
	return convertDevices(r.node.Manager().GetDevices(podUID, container))
}

func (r kubeletResources) GetAllocatableDevices(logger klog.Logger) []*podresourcesv1.ContainerDevices {
	return convertDevices(r.node.Manager().GetAllocatableDevices(logger))
}

// noResources has no CPUs, memory and claims.
type noResources struct{}

func (noResources) GetCPUs(*corev1.Pod, *corev1.Container) []int64 { return nil }
func (noResources) GetPodCPUs(string) []int64                      { return nil }
func (noResources) GetAllocatableCPUs() []int64                    { return nil }

func (noResources) GetMemory(klog.Logger, *corev1.Pod, *corev1.Container) []*podresourcesv1.ContainerMemory {
	return nil
}

func (noResources) GetPodMemory(klog.Logger, string) []*podresourcesv1.ContainerMemory { return nil }

func (noResources) GetAllocatableMemory(klog.Logger) []*podresourcesv1.ContainerMemory { return nil }

func (noResources) GetDynamicResources(klog.Logger, *corev1.Pod, *corev1.Container) []*podresourcesv1.DynamicResource {
	return nil
}

// serveKubeletResources serves the kubelet's podresources API, without its rate limit, and returns a client. stop stops the server.
func serveKubeletResources(t testing.TB, node *devicemanager.ConformanceNode, socket string) (client podresourcesv1.PodResourcesListerClient, stop func()) {
	providers := kubepodresources.PodResourcesProviders{
		Pods: kubeletResources{node}, Devices: kubeletResources{node}, Cpus: noResources{}, Memory: noResources{}, DynamicResources: noResources{},
	}
	server := grpc.NewServer()
	podresourcesv1.RegisterPodResourcesListerServer(server, kubepodresources.NewV1PodResourcesServer(t.Context(), providers))
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := server.Serve(l); !errors.Is(err, grpc.ErrServerStopped) {
			assert.NoError(t, err)
		}
	})
	conn := dialSocket(t, socket)
	return podresourcesv1.NewPodResourcesListerClient(conn), func() {
		assert.NoError(t, conn.Close())
		server.Stop()
		serving.Wait()
	}
}

// serveOurResources serves our podresources API, without its rate limit, and returns a client. stop stops the server.
func serveOurResources(t testing.TB, devices *device.Allocator, pods func() []*corev1.Pod, socket string) (client podresourcesv1.PodResourcesListerClient, stop func()) {
	server, err := podresources.New(podresources.Options{
		Socket: socket, Devices: devices, Rate: -1, ListUnreserved: true,
		Pods: podresources.PodsFunc(func() (active, inactive []device.Pod) { return poddevice.FromPods(pods()), nil }),
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var serving sync.WaitGroup
	serving.Go(func() { assert.NoError(t, server.Run(ctx)) })
	conn := dialSocket(t, socket)
	return podresourcesv1.NewPodResourcesListerClient(conn), func() {
		assert.NoError(t, conn.Close())
		cancel()
		serving.Wait()
	}
}

// describeResources returns the sorted lines of all responses of a podresources server; Get is called for the pod with this name.
func describeResources(ctx context.Context, client podresourcesv1.PodResourcesListerClient, name string) (lines []string) {
	list, err := client.List(ctx, &podresourcesv1.ListPodResourcesRequest{})
	lines = append(lines, fmt.Sprintf("List: error %v", err))
	for _, pod := range list.GetPodResources() {
		lines = append(lines, describePodResources("List", pod)...)
	}
	get, err := client.Get(ctx, &podresourcesv1.GetPodResourcesRequest{PodNamespace: "default", PodName: name})
	lines = append(lines, fmt.Sprintf("Get: error %v", err))
	lines = append(lines, describePodResources("Get", get.GetPodResources())...)
	allocatable, err := client.GetAllocatableResources(ctx, &podresourcesv1.AllocatableResourcesRequest{})
	lines = append(lines, fmt.Sprintf("GetAllocatableResources: error %v, CPUs %v, memory %v", err, allocatable.GetCpuIds(), allocatable.GetMemory()))
	for _, d := range allocatable.GetDevices() {
		lines = append(lines, "GetAllocatableResources: "+describeDevice(d))
	}
	slices.Sort(lines)
	return lines
}

func describePodResources(method string, pod *podresourcesv1.PodResources) (lines []string) {
	for i, c := range pod.GetContainers() {
		at := fmt.Sprintf("%s: %s/%s container %d %s", method, pod.GetNamespace(), pod.GetName(), i, c.GetName())
		lines = append(lines, fmt.Sprintf("%s: CPUs %v, memory %v, claims %v", at, c.GetCpuIds(), c.GetMemory(), c.GetDynamicResources()))
		for _, d := range c.GetDevices() {
			lines = append(lines, at+": "+describeDevice(d))
		}
	}
	return lines
}

func describeDevice(d *podresourcesv1.ContainerDevices) string {
	text := fmt.Sprintf("%s %q", d.GetResourceName(), d.GetDeviceIds())
	if d.Topology != nil {
		text += " on"
	}
	for _, node := range d.GetTopology().GetNodes() {
		text += fmt.Sprintf(" %d", node.GetID())
	}
	return text
}
