// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/device/plugin"
	"github.com/seed81659283/nodeagent/internal/plainfile"
)

// The file in testdata was written by the kubelet's package checkpoint.
func TestReadCheckpoint(t *testing.T) {
	previous, err := plugin.ReadCheckpoint(filepath.Join("testdata", plugin.CheckpointName))
	require.NoError(t, err)
	gpu := []device.Device{{ID: "gpu1"}} // no longer healthy, without NUMA node
	assert.Equal(t, device.Previous{
		Resources: []string{"vendor.example/gpu", "vendor.example/nic", "vendor.example/none"},
		Claims: []device.Claim{
			{PodUID: "uid-a", Container: "init", Resource: "vendor.example/gpu", Devices: gpu}, // its response has a relative path
			{PodUID: "uid-a", Container: "main", Resource: "vendor.example/gpu", Devices: gpu, Response: &device.Response{
				Mounts:  []cri.Mount{{ContainerPath: "/usr/lib/gpu", HostPath: "/opt/gpu", ReadOnly: true}},
				Devices: []cri.Device{{ContainerPath: "/dev/gpu1", HostPath: "/dev/gpu1", Permissions: "rw"}},
			}},
			{
				PodUID: "uid-b", Container: "main", Resource: "vendor.example/nic",
				Devices: []device.Device{{ID: "nic0", Healthy: true, Nodes: 0b11}, {ID: "nic1", Healthy: true, Nodes: 0b10}},
				Response: &device.Response{
					Env: map[string]string{"NIC": "nic0,nic1"}, Annotations: map[string]string{"vendor.example/nic": "0"},
					CDIDevices: []string{"vendor.example/nic=nic0"},
				},
			},
			{PodUID: "uid-c", Container: "c", Resource: "vendor.example/empty", Devices: []device.Device{{ID: "e"}}}, // its response is empty
		},
	}, previous)
}

// The checksums are those of the kubelet.
func TestReadCheckpointVerifiesChecksum(t *testing.T) {
	valid, err := os.ReadFile(filepath.Join("testdata", plugin.CheckpointName))
	require.NoError(t, err)
	for name, test := range map[string]struct{ content, want string }{
		"null":          {`{"Data":{"PodDeviceEntries":null,"RegisteredDevices":null},"Checksum":1944006890}`, ""},
		"empty":         {`{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":3467439661}`, ""},
		"null as empty": {`{"Data":{"PodDeviceEntries":null,"RegisteredDevices":null},"Checksum":3467439661}`, "the checksum is 1944006890, not 3467439661"},
		"other ID":      {strings.Replace(string(valid), "gpu1", "gpu2", 1), "the file is damaged"},
		"cut":           {string(valid[:len(valid)-10]), "unexpected end of JSON input"},
		"more":          {string(valid) + "x", "invalid character"},
		"no list":       {`{"Data":{"PodDeviceEntries":{}}}`, "PodDeviceEntries is no list"},
		"many entries":  {`{"Data":{"PodDeviceEntries":[` + strings.Repeat("{},", 1<<16) + `{}]}}`, "more than 65536 entries"},
		"deep":          {strings.Repeat("[", 1<<20), "exceeded max depth"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "c")
			require.NoError(t, os.WriteFile(path, []byte(test.content), 0o600))
			previous, err := plugin.ReadCheckpoint(path)
			if test.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, test.want)
				require.ErrorContains(t, err, path)
			}
			assert.Empty(t, previous)
		})
	}
}

func TestReadCheckpointFollowsNoLinks(t *testing.T) {
	dir := t.TempDir()
	_, err := plugin.ReadCheckpoint(filepath.Join(dir, "none"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	valid, err := filepath.Abs(filepath.Join("testdata", plugin.CheckpointName))
	require.NoError(t, err)
	require.NoError(t, os.Symlink(valid, filepath.Join(dir, "link")))
	_, err = plugin.ReadCheckpoint(filepath.Join(dir, "link"))
	require.ErrorIs(t, err, plainfile.ErrIrregular)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "huge"), make([]byte, 16<<20+1), 0o600))
	_, err = plugin.ReadCheckpoint(filepath.Join(dir, "huge"))
	require.ErrorIs(t, err, plainfile.ErrTooLarge)
}

// Any content is read or refused without a panic. What is read has valid claims.
func FuzzReadCheckpoint(f *testing.F) {
	valid, err := os.ReadFile(filepath.Join("testdata", plugin.CheckpointName))
	require.NoError(f, err)
	f.Add(valid)
	f.Add([]byte(`{"Data":{"PodDeviceEntries":null,"RegisteredDevices":null},"Checksum":1944006890}`))
	path := filepath.Join(f.TempDir(), "c")
	f.Fuzz(func(t *testing.T, content []byte) {
		require.NoError(t, os.WriteFile(path, content, 0o600))
		previous, err := plugin.ReadCheckpoint(path)
		if err != nil {
			return
		}
		require.True(t, json.Valid(content))
		for _, c := range previous.Claims {
			require.NotEmpty(t, c.PodUID+c.Container+c.Resource)
		}
	})
}
