// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"

	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/seed81659283/nodeagent/device"
)

// noNode is the NUMA node of a device without one, as in sysfs and in the kubelet's checkpoint.
const noNode = -1

// convertDevices returns the devices of a ListAndWatch response. It checks IDs and NUMA nodes; [device.Feed] checks that IDs are unique. An error
// names the device.
func convertDevices(list []*api.Device) ([]device.Device, error) {
	if len(list) > device.MaxDevices {
		return nil, fmt.Errorf("list has %d devices, more than %d", len(list), device.MaxDevices)
	}
	devices := make([]device.Device, len(list))
	for i, d := range list {
		switch id := d.GetID(); {
		case id == "":
			return nil, fmt.Errorf("device %d of the list has no ID", i)
		case len(id) > device.MaxIDLength:
			return nil, fmt.Errorf("device %d of the list: ID %.32q... has %d bytes, more than %d", i, id, len(id), device.MaxIDLength)
		}
		devices[i] = device.Device{ID: d.GetID(), Healthy: d.GetHealth() == api.Healthy}
		for _, node := range d.GetTopology().GetNodes() {
			if node.GetID() == noNode {
				continue
			}
			if node.GetID() < 0 || node.GetID() > 63 {
				return nil, fmt.Errorf("device %q: NUMA node %d: must be between 0 and 63", d.GetID(), node.GetID())
			}
			devices[i].Nodes |= 1 << node.GetID()
		}
	}
	return devices, nil
}
