// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups"
)

func TestBuildSettingsConvertsLimitsToFiles(t *testing.T) {
	for _, c := range []struct {
		name string
		r    cgroups.Resources
		want string
	}{
		{name: "zero Resources"},
		{"shares become a weight", cgroups.Resources{CPUShares: 1024}, "cpu.weight=100"},
		{"quota gets the default period", cgroups.Resources{CPUQuota: 20000}, "cpu.max=20000 100000"},
		{"quota with period", cgroups.Resources{CPUQuota: 20000, CPUPeriod: 50000}, "cpu.max=20000 50000"},
		{"no quota", cgroups.Resources{CPUQuota: cgroups.Unlimited}, "cpu.max=max 100000"},
		{"period only", cgroups.Resources{CPUPeriod: 50000}, "cpu.max=max 50000"},
		{"zero PIDs become one, as in systemd", cgroups.Resources{PidsMax: new(int64(0))}, "pids.max=1"},
		{"PIDs without a limit", cgroups.Resources{PidsMax: new(int64(-1))}, "pids.max=max"},
		{"zero bytes are a limit", cgroups.Resources{MemoryMax: new(int64(0)), SwapMax: new(int64(0))}, "memory.swap.max=0, memory.max=0"},
		{
			"swap limit first, memory.max last",
			cgroups.Resources{
				MemoryMax: new(int64(-1)), MemoryHigh: new(int64(4)), MemoryLow: new(int64(3)), MemoryMin: new(int64(2)), SwapMax: new(int64(1)),
			},
			"memory.swap.max=1, memory.min=2, memory.low=3, memory.high=4, memory.max=max",
		},
		{"a group", cgroups.Resources{OOMGroup: new(false)}, "memory.oom.group=0"},
		{
			"huge pages, usage and reservation",
			cgroups.Resources{Hugetlb: map[string]int64{"2MB": 0, "1GB": -1}},
			"hugetlb.1GB.max=max, hugetlb.1GB.rsvd.max=max, hugetlb.2MB.max=0, hugetlb.2MB.rsvd.max=0",
		},
		{
			"Unified files after all other files",
			cgroups.Resources{CPUShares: 2, Unified: map[string]string{"io.weight": "50", "cpu.idle": "1"}},
			"cpu.weight=1, cpu.idle=1, io.weight=50",
		},
	} {
		got, err := buildSettings(nil, c.r, cgroups.WeightLogQuadratic)
		require.NoError(t, err, c.name)
		var text []string
		for _, s := range got {
			text = append(text, s.file+"="+s.value)
			assert.Equal(t, s.file == "memory.max" || s.file == "memory.high", s.nonblock, s.file)
			assert.True(t, strings.HasPrefix(s.file, s.controller+"."), s.file)
		}
		assert.Equal(t, c.want, strings.Join(text, ", "), c.name)
	}
	linear, err := buildSettings(nil, cgroups.Resources{CPUShares: 1024}, cgroups.WeightLinear)
	require.NoError(t, err)
	assert.Equal(t, "39", linear[0].value)
}

func TestIsSatisfiedByComparesFileContent(t *testing.T) {
	page := int64(os.Getpagesize())
	bytes := func(n int64) setting { return setting{controller: "memory", value: formatLimit(n), unit: page} }
	for _, c := range []struct {
		want    setting
		current string
		holds   bool
	}{
		{bytes(4 * page), formatLimit(4*page) + "\n", true},
		{bytes(4*page + 1), formatLimit(4*page) + "\n", true},
		{bytes(5 * page), formatLimit(4*page) + "\n", false},
		{bytes(4 * page), "max\n", false},
		{bytes(cgroups.Unlimited), "max\n", true},
		{setting{controller: "cpu", value: "max 100000"}, "max 100000\n", true},
		{setting{controller: "cpu", value: "max 100000"}, "1000 100000\n", false},
		{setting{controller: "cpuset", value: "0,1,2"}, "0-2\n", true},
		{setting{controller: "cpuset", value: "0,1"}, "\n", false},
		{setting{controller: "pids", value: "7"}, "", false},
	} {
		assert.Equal(t, c.holds, c.want.isSatisfiedBy(c.current), "%+v over %q", c.want, c.current)
	}
	alone := setting{value: "max 50000", periodOnly: true}
	assert.Equal(t, "2000 50000", alone.keepQuota("2000 100000\n").value)
	assert.Equal(t, "max 50000", alone.keepQuota("max 100000\n").value)
}

func TestNamesConvertPathsToDirectories(t *testing.T) {
	const pod = cgroups.Path("kubepods/burstable/pod1-2")
	for _, c := range []struct {
		names          names
		full, dir, top string
	}{
		{names{}, "/kubepods/burstable/pod1-2", "kubepods/burstable/pod1-2", ""},
		{names{root: "agent/a"}, "/agent/a/kubepods/burstable/pod1-2", "kubepods/burstable/pod1-2", "agent/a"},
		{
			names{systemd: true},
			"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice",
			"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice", "",
		},
		{
			names{root: "agent", systemd: true},
			"/agent.slice/agent-kubepods.slice/agent-kubepods-burstable.slice/agent-kubepods-burstable-pod1_2.slice",
			"agent-kubepods.slice/agent-kubepods-burstable.slice/agent-kubepods-burstable-pod1_2.slice", "agent.slice",
		},
	} {
		full, err := c.names.cgroupName(pod)
		require.NoError(t, err)
		assert.Equal(t, c.full, full)
		dir, err := c.names.relativeDir(pod)
		require.NoError(t, err)
		assert.Equal(t, c.dir, dir)
		top, err := c.names.rootDir()
		require.NoError(t, err)
		assert.Equal(t, c.top, top)
		empty, err := c.names.relativeDir("")
		require.NoError(t, err)
		assert.Empty(t, empty)
		component, ok := c.names.pathComponent(dir[strings.LastIndexByte(dir, '/')+1:])
		assert.True(t, ok)
		assert.Equal(t, "pod1-2", component)
	}
	_, err := names{systemd: true}.relativeDir("a_b")
	assert.Error(t, err, "systemd reads the character differently")
	_, ok := names{systemd: true}.pathComponent("cri-containerd-abc.scope")
	assert.False(t, ok)
}
