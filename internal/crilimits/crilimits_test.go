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
