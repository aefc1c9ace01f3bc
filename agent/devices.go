// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"os"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/device/placement"
	"github.com/seed81659283/nodeagent/device/plugin"
	"github.com/seed81659283/nodeagent/device/poddevice"
	"github.com/seed81659283/nodeagent/device/podresources"
	"github.com/seed81659283/nodeagent/internal/takeover"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/nodestatus"
)

// createDevices creates the Placement of devices, CPUs and memory, and the servers of device plugins and podresources. Pods of Options.Runtime have no devices.
func (a *Agent) createDevices(_ context.Context, o *lifecycle.Options) error {
	if a.options.Runtime != nil || a.options.Ephemeral {
		return nil
	}
	configured, _ := a.config.Kubelet.Topology() // validated
	topology, err := placement.ReadNodes(os.DirFS("/"), configured)
	if err != nil {
		return err
	}
	checkpoint := a.filePath("device-plugins/" + plugin.CheckpointName)
	opts := poddevice.Options{Runtime: a.runtime, IsManaged: a.pods.IsManaged, Allocator: device.Options{
		Record: a.filePath("devices"), Topology: topology, IsForeign: a.node.HasCapacity, Logger: a.log,
		Previous: func() (device.Previous, error) { return plugin.ReadCheckpoint(checkpoint) },
		Hooks:    a.metrics.Devices(device.Hooks{CapacityChanged: a.node.Changed}),
	}, Unhealthy: poddevice.Reaction(a.config.Node.UnhealthyDevices), Evict: a.pods.Evict}
	if a.config.Node.AdoptPods { // for the kubelet that takes the node back
		opts.Allocator.Export = plugin.ExportTo(checkpoint)
	}
	devices, err := poddevice.New(opts)
	if err != nil {
		return err
	}
	cpuManager, _ := a.config.Kubelet.CPUManager() // validated
	memoryManager, _ := a.config.Kubelet.MemoryManager(a.machine.Memory)
	updater, _ := a.runtime.(cri.Updater)
	resizeCPUs, resizeMemory := a.config.Kubelet.ExclusiveResizes()
	if a.placed, err = placement.NewNode(os.DirFS("/"), cpuManager, placement.FilesIn(a.config.Node.RootDir, a.config.Node.AdoptPods), placement.Options{
		ResizeCPUs: resizeCPUs, ResizeMemory: resizeMemory, Devices: devices, MemoryConfig: memoryManager, Containers: a.generator, Updater: updater, IsManaged: a.pods.IsManaged, Active: a.pods.Active, Owns: a.pods.Owns,
		Period: a.config.Kubelet.CPUManagerReconcilePeriod.Duration, Hooks: placement.Hooks{CPUsPinned: a.metrics.CPUs(cpuManager), MemoryPinned: a.metrics.Memory()}, Logger: a.log,
	}); err != nil {
		return err
	}
	a.metrics.CPUUsage(a.placed.CPUUsage)
	allocator := devices.Allocator()
	if a.plugins, err = plugin.New(plugin.Options{
		Dir: a.filePath("device-plugins"), Registry: a.filePath("plugins_registry"), Receiver: allocator, Sockets: allocator.Sockets(), Logger: a.log,
		Hooks: plugin.Hooks{RegistrationRequested: a.metrics.DevicePlugins()},
	}); err != nil {
		return err
	}
	resources := podresources.Options{Socket: a.filePath("pod-resources/kubelet.sock"), Pods: podresources.PodsFunc(poddevice.ActivePods(&a.pods)), Devices: allocator, CPUs: a.placed, Memory: a.placed, Logger: a.log}
	resources.Hooks.SocketCreated = takeover.Marker(a.log)
	resources.Hooks.RequestReceived, resources.Hooks.RequestFailed = a.metrics.PodResources()
	server, err := podresources.New(resources)
	if err != nil {
		return err
	}
	o.Devices, o.AdmitResize = a.placed, a.placed.AdmitResize
	a.parts.Add("devices", a.placed.Run)
	a.parts.Add("device plugins", a.plugins.Run)
	a.parts.Add("podresources API", server.Run)
	return nil
}

// deviceCapacity returns the resources of device plugins for the Node status: capacity, allocatable, and removed resources.
func (a *Agent) deviceCapacity() (d nodestatus.Devices) {
	d.Capacity, d.Allocatable, d.Removed = a.placed.Capacity()
	return d
}
