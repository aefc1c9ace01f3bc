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
	const v2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"
	const v1 = "31 30 0:27 / /sys/fs/cgroup/memory rw shared:5 - cgroup cgroup rw,memory\n"
	mounts := v2
	read := func(meminfo string) (podtree.Options, error) {
		return podtree.HostOptions(fstest.MapFS{
			"self/mountinfo": {Data: []byte(mounts)},
			"meminfo":        {Data: []byte(meminfo)}, "sys/kernel/pid_max": {Data: []byte("4194304\n")},
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
	require.False(t, o.Node.CgroupV1)

	const memory = "MemTotal: 8 kB\nSwapTotal: 8 kB\n"
	mounts = "22 1 8:1 / / rw - ext4 /dev/root rw\n" + v2 + v1
	o, err = read(memory)
	require.NoError(t, err)
	require.True(t, o.Node.CgroupV1, "a host with both hierarchies uses v1 for the limits")
	mounts = "22 1 8:1 / / rw - ext4 /dev/root rw\n"
	_, err = read(memory)
	require.ErrorContains(t, err, "self/mountinfo has none")
	mounts = v2

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
