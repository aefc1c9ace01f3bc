// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package crilimits_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/crilimits"
)

func TestConvert(t *testing.T) {
	for _, test := range []struct {
		name string
		in   *cri.Resources
		want cgroups.Resources
	}{
		{"none", nil, cgroups.Resources{}},
		{"nothing set", &cri.Resources{}, cgroups.Resources{}},
		{
			"CPU", &cri.Resources{CPUShares: 512, CPUQuota: 50000, CPUPeriod: 100000},
			cgroups.Resources{CPUShares: 512, CPUQuota: 50000, CPUPeriod: 100000},
		},
		{"period without quota", &cri.Resources{CPUPeriod: 100000}, cgroups.Resources{}},
		{"no quota", &cri.Resources{CPUQuota: -1}, cgroups.Resources{CPUQuota: cgroups.Unlimited}},
		{
			"no swap", &cri.Resources{MemoryLimit: 100, SwapLimit: 100},
			cgroups.Resources{MemoryMax: new(int64(100)), SwapMax: new(int64(0))},
		},
		{
			"swap", &cri.Resources{MemoryLimit: 100, SwapLimit: 150},
			cgroups.Resources{MemoryMax: new(int64(100)), SwapMax: new(int64(50))},
		},
		{
			"all swap", &cri.Resources{MemoryLimit: 100, SwapLimit: -1},
			cgroups.Resources{MemoryMax: new(int64(100)), SwapMax: new(int64(cgroups.Unlimited))},
		},
		{"swap limit without memory limit", &cri.Resources{SwapLimit: 150}, cgroups.Resources{}},
		{"the rest", &cri.Resources{
			CpusetCPUs: "0-1", CpusetMems: "0", HugepageLimits: []cri.HugepageLimit{{PageSize: "2MB", Limit: math.MaxUint64}},
			Unified: map[string]string{"memory.high": "1"}, OOMScoreAdj: 5,
		}, cgroups.Resources{
			CpusetCPUs: "0-1", CpusetMems: "0", Hugetlb: map[string]int64{"2MB": math.MaxInt64}, Unified: map[string]string{"memory.high": "1"},
		}},
	} {
		got, err := crilimits.Convert(test.in)
		require.NoError(t, err, test.name)
		require.Equal(t, test.want, got, test.name)
	}
	_, err := crilimits.Convert(&cri.Resources{CPUQuota: 1})
	require.ErrorContains(t, err, "resources: field CPUQuota: 1")
}

// The result of Convert shares no memory with its argument.
func TestConvertSharesNoMemory(t *testing.T) {
	in := &cri.Resources{MemoryLimit: 100, Unified: map[string]string{"memory.high": "1"}}
	got, err := crilimits.Convert(in)
	require.NoError(t, err)
	in.MemoryLimit, in.Unified["memory.high"] = 5, "2"
	require.Equal(t, cgroups.Resources{MemoryMax: new(int64(100)), Unified: map[string]string{"memory.high": "1"}}, got)
}

func TestMerge(t *testing.T) {
	old := &cri.Resources{
		CPUShares: 2, CPUQuota: 3, CPUPeriod: 4, MemoryLimit: 5, SwapLimit: 6, OOMScoreAdj: 7, CpusetCPUs: "0-3", CpusetMems: "0-1",
		HugepageLimits: []cri.HugepageLimit{{PageSize: "2MB", Limit: 1}}, Unified: map[string]string{"a": "1", "b": "1"},
	}
	require.Equal(t, old, crilimits.Merge(old, nil))
	require.Equal(t, old, crilimits.Merge(old, &cri.Resources{}))
	require.Equal(t, old, crilimits.Merge(nil, old))
	require.Equal(t, &cri.Resources{}, crilimits.Merge(nil, nil))
	for name, test := range map[string]struct {
		change cri.Resources
		want   func(r *cri.Resources)
	}{
		"shares":     {cri.Resources{CPUShares: 9}, func(r *cri.Resources) { r.CPUShares = 9 }},
		"quota":      {cri.Resources{CPUQuota: -1, CPUPeriod: 9}, func(r *cri.Resources) { r.CPUQuota, r.CPUPeriod = -1, 9 }},
		"memory":     {cri.Resources{MemoryLimit: 9, SwapLimit: 10}, func(r *cri.Resources) { r.MemoryLimit, r.SwapLimit = 9, 10 }},
		"score":      {cri.Resources{OOMScoreAdj: 9}, func(r *cri.Resources) { r.OOMScoreAdj = 9 }},
		"CPUs":       {cri.Resources{CpusetCPUs: "1"}, func(r *cri.Resources) { r.CpusetCPUs = "1" }},
		"NUMA nodes": {cri.Resources{CpusetMems: "1"}, func(r *cri.Resources) { r.CpusetMems = "1" }},
		"huge pages": {cri.Resources{HugepageLimits: []cri.HugepageLimit{}}, func(r *cri.Resources) { r.HugepageLimits = []cri.HugepageLimit{} }},
		"unified":    {cri.Resources{Unified: map[string]string{"b": "2", "c": "2"}}, func(r *cri.Resources) { r.Unified = map[string]string{"a": "1", "b": "2", "c": "2"} }},
	} {
		want := *old
		test.want(&want)
		require.Equal(t, &want, crilimits.Merge(old, &test.change), name)
	}
	merged := crilimits.Merge(old, &cri.Resources{})
	merged.HugepageLimits[0].Limit, merged.Unified["a"] = 8, "8"
	require.EqualValues(t, 1, old.HugepageLimits[0].Limit)
	require.Equal(t, "1", old.Unified["a"])
}
