// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/device/plugin"
)

func TestExportIsReadBack(t *testing.T) {
	previous, err := plugin.ReadCheckpoint(filepath.Join("testdata", plugin.CheckpointName))
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "device-plugins", plugin.CheckpointName)
	healthy := map[string][]string{"vendor.example/gpu": {}, "vendor.example/nic": {"nic0", "nic1"}, "vendor.example/none": nil}
	for range 2 { // the second call replaces the file
		require.NoError(t, plugin.ExportTo(path)(previous.Claims, healthy))
	}
	again, err := plugin.ReadCheckpoint(path)
	require.NoError(t, err)
	assert.Equal(t, previous, again)
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Contains(t, string(content), `"DeviceIDs":{"0":["nic0"],"1":["nic0","nic1"]}`)
	assert.Contains(t, string(content), `"DeviceIDs":{"-1":["gpu1"]}`)
	assert.Contains(t, string(content), `"RegisteredDevices":{"vendor.example/gpu":[],"vendor.example/nic":["nic0","nic1"],"vendor.example/none":[]}`)
}

// A kubelet that has run between two agents has kept the empty response of an unknown one. The plugin knows the response.
func TestUnknownResponseStaysUnknownAfterKubelet(t *testing.T) {
	path := filepath.Join(t.TempDir(), plugin.CheckpointName)
	claims := []device.Claim{{PodUID: "u", Container: "c", Resource: "vendor.example/gpu", Devices: []device.Device{{ID: "a"}}}}
	require.NoError(t, plugin.ExportTo(path)(claims, map[string][]string{"vendor.example/gpu": {}}))
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(content), `"AllocResp":""`, "the kubelet needs a response to keep the device")
	previous, err := plugin.ReadCheckpoint(path)
	require.NoError(t, err)
	require.Equal(t, claims, previous.Claims)
	allocator, err := device.New(device.Options{Previous: func() (device.Previous, error) { return previous, nil }})
	require.NoError(t, err)
	_, err = allocator.Connect("vendor.example/gpu", "", allocatingPlugin{})
	require.NoError(t, err)
	response, err := allocator.Start(t.Context(), "u", "c")
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"GPU": "a"}, response.Env)
}

// allocatingPlugin is a plugin that sets a variable.
type allocatingPlugin struct{ device.Plugin }

func (allocatingPlugin) Options() device.PluginOptions { return device.PluginOptions{} }

func (allocatingPlugin) Allocate(_ context.Context, ids []string) (device.Response, error) {
	return device.Response{Env: map[string]string{"GPU": ids[0]}}, nil
}

func TestExportWithoutClaims(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c")
	require.NoError(t, plugin.ExportTo(path)(nil, nil))
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, `{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":3467439661}`, string(content))
}

func TestExportRefusesWhatCannotBeRead(t *testing.T) {
	claim := func(ids ...string) []device.Claim {
		c := device.Claim{PodUID: "u", Container: "c", Resource: "vendor.example/gpu"}
		for _, id := range ids {
			c.Devices = append(c.Devices, device.Device{ID: id})
		}
		return []device.Claim{c}
	}
	large := claim("a")
	large[0].Response = &device.Response{Env: map[string]string{"A": strings.Repeat("a", 4<<20)}}
	var many []device.Claim
	for range 200 {
		many = append(many, claim("a")...)
		many[len(many)-1].Response = &device.Response{Env: map[string]string{"A": strings.Repeat("a", 128<<10)}}
	}
	for name, test := range map[string]struct {
		claims []device.Claim
		want   string
	}{
		"invalid UTF-8":  {claim("\xff"), `pod u, container c, resource vendor.example/gpu: "\xff" is not valid UTF-8`},
		"large response": {large, "bytes, more than 4194304"},
		"large file":     {many, "the checkpoint has more than 16777216 bytes"},
		"many claims":    {make([]device.Claim, 1<<16+1), "65537 claims, more than"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "c")
			require.NoError(t, plugin.ExportTo(path)(claim("old"), nil))
			err := plugin.ExportTo(path)(test.claims, nil)
			require.ErrorContains(t, err, test.want)
			require.ErrorContains(t, err, path)
			previous, err := plugin.ReadCheckpoint(path)
			require.NoError(t, err)
			assert.Equal(t, "old", previous.Claims[0].Devices[0].ID)
		})
	}
}

// The kubelet reads only the names of the resources, so that the IDs may be omitted.
func TestExportOmitsTooManyHealthyIDs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c")
	ids := make([]string, 1<<15)
	for i := range ids {
		ids[i] = strings.Repeat("x", 1<<10)
	}
	require.NoError(t, plugin.ExportTo(path)(nil, map[string][]string{"vendor.example/a": ids, "vendor.example/b": {"\xff"}}))
	previous, err := plugin.ReadCheckpoint(path)
	require.NoError(t, err)
	assert.Equal(t, []string{"vendor.example/a", "vendor.example/b"}, previous.Resources)
}
