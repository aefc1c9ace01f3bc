// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podtree_test

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups/podtree"
)

func TestHostOptions(t *testing.T) {
	read := func(meminfo string) (podtree.Options, error) {
		return podtree.HostOptions(fstest.MapFS{
			"meminfo": {Data: []byte(meminfo)}, "sys/kernel/pid_max": {Data: []byte("4194304\n")},
			"sys/kernel/threads-max": {Data: []byte("1000\n")},
		})
	}
	o, err := read("MemTotal:       16384256 kB\nMemFree:  1 kB\nHugePages_Total:       0\nSwapTotal:       8 kB\n")
	require.NoError(t, err)
	require.NoError(t, o.Validate())
	require.EqualValues(t, 16384256<<10, o.Capacity.Memory().Value())
	require.EqualValues(t, 16384256<<10, o.Node.MemoryCapacity)
	require.EqualValues(t, 8<<10, o.Node.SwapCapacity)
	require.EqualValues(t, 1000, o.MaxPIDs)
	require.Positive(t, o.Capacity.Cpu().Value())

	for meminfo, says := range map[string]string{
		"":                                     `no line "MemTotal:"`,
		"MemTotal: 1 kB\n":                     `no line "SwapTotal:"`,
		"MemTotal: x kB\nSwapTotal: 1 kB\n":    `no line "MemTotal:"`,
		"MemTotal: 5 MB\nSwapTotal: 1 kB\n":    `no line "MemTotal:"`,
		"MemTotal: -5 kB\nSwapTotal: 1 kB\n":   `no line "MemTotal:"`,
		"MemTotal: 9999999999999999999 kB\nSw": `no line "MemTotal:"`,
	} {
		_, err := read(meminfo)
		require.ErrorContains(t, err, says, meminfo)
	}
	_, err = podtree.HostOptions(fstest.MapFS{})
	require.ErrorContains(t, err, "meminfo")
}
