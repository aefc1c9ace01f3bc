// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package device_test

import (
	"os"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/device"
)

func TestReadMachineNodes(t *testing.T) {
	for text, want := range map[string]device.Mask{"0\n": 1, "0-1,3\n": 0b1011, "63": 1 << 63} {
		nodes, err := device.ReadMachineNodes(fstest.MapFS{"sys/devices/system/node/online": {Data: []byte(text)}})
		require.NoError(t, err)
		assert.Equal(t, want, nodes, text)
	}
	for _, text := range []string{"", "x", "1-0", "64", "0-", "-1", "0,,1"} {
		_, err := device.ReadMachineNodes(fstest.MapFS{"sys/devices/system/node/online": {Data: []byte(text)}})
		assert.ErrorContains(t, err, "read NUMA nodes", text)
	}
	nodes, err := device.ReadMachineNodes(fstest.MapFS{})
	require.NoError(t, err)
	assert.Equal(t, device.Mask(1), nodes, "a kernel without NUMA support")
	nodes, err = device.ReadMachineNodes(os.DirFS("/"))
	require.NoError(t, err)
	assert.True(t, nodes.Has(0), "this machine")
}

func TestParsePolicy(t *testing.T) {
	for _, p := range []device.Policy{device.None, device.BestEffort, device.Restricted, device.SingleNUMANode} {
		parsed, err := device.ParsePolicy(p.String())
		require.NoError(t, err)
		assert.Equal(t, p, parsed)
	}
	_, err := device.ParsePolicy("strict")
	assert.EqualError(t, err, `policy "strict" is neither none, best-effort, restricted nor single-numa-node`)
	assert.Equal(t, "invalid", device.Policy(-1).String())
}
