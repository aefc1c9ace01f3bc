// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"os"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/device/plugin"
	"github.com/seed81659283/nodeagent/device/poddevice"
	"github.com/seed81659283/nodeagent/device/podresources"
	"github.com/seed81659283/nodeagent/internal/takeover"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/nodestatus"
)

// createDevices creates the allocator of devices, the registration server for device plugins, and the podresources server, which reports the devices
// of each container. Pods of Options.Runtime have no devices.
func (a *Agent) createDevices(_ context.Context, o *lifecycle.Options) error {
	if a.options.Runtime != nil || a.options.Ephemeral {
		return nil
	}
	topology, _ := a.config.Kubelet.Topology() // validated
	var err error
	if topology.Machine, err = device.ReadMachineNodes(os.DirFS("/")); err != nil {
		return err
	}
	checkpoint := a.filePath("device-plugins/" + plugin.CheckpointName)
	opts := poddevice.Options{Runtime: a.runtime, IsManaged: a.pods.IsManaged, Allocator: device.Options{
		Record: a.filePath("devices"), Topology: topology, IsForeign: a.hasResource, Logger: a.log,
		Previous: func() (device.Previous, error) { return plugin.ReadCheckpoint(checkpoint) },
		Hooks:    a.metrics.Devices(device.Hooks{CapacityChanged: a.node.Changed}),
	}, Unhealthy: poddevice.Reaction(a.config.Node.UnhealthyDevices), Evict: a.pods.Evict}
	if a.config.Node.AdoptPods { // for the kubelet that takes the node back
		opts.Allocator.Export = plugin.ExportTo(checkpoint)
	}
	if a.devices, err = poddevice.New(opts); err != nil {
		return err
	}
	allocator := a.devices.Allocator()
	plugins := plugin.Options{
		Dir: a.filePath("device-plugins"), Registry: a.filePath("plugins_registry"), Receiver: allocator, Sockets: allocator.Sockets(), Logger: a.log,
		Hooks: plugin.Hooks{RegistrationRequested: a.metrics.DevicePlugins()},
	}
	if a.plugins, err = plugin.New(plugins); err != nil {
		return err
	}
	resources := podresources.Options{Socket: a.filePath("pod-resources/kubelet.sock"), Pods: podresources.PodsFunc(a.devicePods), Devices: allocator, Logger: a.log}
	resources.Hooks.SocketCreated = takeover.Marker(a.log)
	resources.Hooks.RequestReceived, resources.Hooks.RequestFailed = a.metrics.PodResources()
	server, err := podresources.New(resources)
	if err != nil {
		return err
	}
	o.Devices = a.devices
	a.parts.Add("devices", a.devices.Run)
	a.parts.Add("device plugins", a.plugins.Run)
	a.parts.Add("podresources API", server.Run)
	return nil
}

// hasResource reports whether the capacity of the Node object contains the named resource. Without a cluster it returns false.
func (a *Agent) hasResource(name string) bool {
	_, ok := cmp.Or(a.Node(), &corev1.Node{}).Status.Capacity[corev1.ResourceName(name)]
	return ok
}

// devicePods returns the active pods for the podresources API. It returns no inactive pods.
func (a *Agent) devicePods() (active, inactive []device.Pod) {
	pods, _ := a.pods.Active()
	return poddevice.FromPods(pods), nil
}

// deviceCapacity returns the resources of device plugins for the Node status: capacity, allocatable, and removed resources.
func (a *Agent) deviceCapacity() (d nodestatus.Devices) {
	if a.devices != nil {
		d.Capacity, d.Allocatable, d.Removed = a.devices.Capacity()
	}
	return d
}
