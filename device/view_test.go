// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package device_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/device/devicetest"
)

func TestAllocatableOmitsDevicesOfDisconnectedPlugin(t *testing.T) {
	a, err := device.New(device.Options{})
	require.NoError(t, err)
	list := makeDevices(2)
	list[1].Healthy = false
	plugin := devicetest.NewPlugin(devicetest.Options{Devices: list})
	feed, err := a.Connect("example.com/gpu", "/gpu.sock", plugin)
	require.NoError(t, err)
	require.NoError(t, plugin.Attach(feed))
	assert.Equal(t, map[string][]device.Device{"example.com/gpu": list[:1]}, a.Allocatable())

	plugin.Disconnect()
	assert.Empty(t, a.Allocatable())
	assert.Equal(t, []device.Resource{{Name: "example.com/gpu", Capacity: 2}}, a.Resources())
}
