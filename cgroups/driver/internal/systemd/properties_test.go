// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package systemd_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/driver/internal/systemd"
)

// line formats properties in one line.
func line(props []systemd.Property) string {
	var words []string
	for _, p := range props {
		words = append(words, fmt.Sprintf("%s=%v", p.Name, p.Value.Value()))
	}
	return strings.Join(words, " ")
}

const infinity = "18446744073709551615"

func TestProperties(t *testing.T) {
	all := cgroups.Resources{
		CPUShares: 1024, CPUQuota: 50_000, CPUPeriod: 200_000, CpusetCPUs: "0-3,9", CpusetMems: "0",
		MemoryMin: new(int64(1)), MemoryLow: new(int64(2)), MemoryHigh: new(int64(3)), MemoryMax: new(int64(4)), SwapMax: new(int64(5)), PidsMax: new(int64(6)),
		Hugetlb: map[string]int64{"2MB": 0}, OOMGroup: new(bool),
	}
	for name, test := range map[string]struct {
		r       cgroups.Resources
		v1      bool
		formula cgroups.WeightFormula
		want    string
	}{
		"zero Resources": {},
		"all": {r: all, want: "CPUWeight=100 MemoryMin=1 MemoryLow=2 MemoryHigh=3 MemoryMax=4 MemorySwapMax=5 " +
			"CPUQuotaPeriodUSec=200000 CPUQuotaPerSecUSec=250000 TasksMax=6 AllowedCPUs=[15 2] AllowedMemoryNodes=[1]"},
		"all on v1": {r: all, v1: true, want: "CPUShares=1024 MemoryLimit=4 " +
			"CPUQuotaPeriodUSec=200000 CPUQuotaPerSecUSec=250000 TasksMax=6 AllowedCPUs=[15 2] AllowedMemoryNodes=[1]"},
		"linear weight":           {r: cgroups.Resources{CPUShares: 1024}, formula: cgroups.WeightLinear, want: "CPUWeight=39"},
		"shares on v1":            {r: cgroups.Resources{CPUShares: 1 << 20}, v1: true, want: "CPUShares=262144"},
		"no quota":                {r: cgroups.Resources{CPUQuota: -1}, want: "CPUQuotaPeriodUSec=100000 CPUQuotaPerSecUSec=" + infinity},
		"period alone":            {r: cgroups.Resources{CPUPeriod: 5000}, want: "CPUQuotaPeriodUSec=5000"},
		"unlimited":               {r: cgroups.Resources{MemoryMax: new(int64(-1)), PidsMax: new(int64(-1))}, want: "MemoryMax=" + infinity + " TasksMax=" + infinity},
		"zero":                    {r: cgroups.Resources{MemoryMin: new(int64(0)), MemoryMax: new(int64(0)), SwapMax: new(int64(0)), PidsMax: new(int64(0))}, want: "MemoryMin=0 MemoryMax=1 MemorySwapMax=0 TasksMax=1"},
		"zero on v1":              {r: cgroups.Resources{MemoryMax: new(int64(0))}, v1: true, want: "MemoryLimit=1"},
		"unified wins":            {r: unified(all, "memory.max=9", "cpu.weight=7", "cpu.max=10000 20000", "pids.max=max", "cpuset.cpus=1", "memory.min=0"), want: "CPUWeight=7 MemoryMin=0 MemoryLow=2 MemoryHigh=3 MemoryMax=9 MemorySwapMax=5 CPUQuotaPeriodUSec=20000 CPUQuotaPerSecUSec=500000 TasksMax=" + infinity + " AllowedCPUs=[2] AllowedMemoryNodes=[1]"},
		"unified quota":           {r: unified(cgroups.Resources{}, "cpu.max=25000"), want: "CPUQuotaPeriodUSec=100000 CPUQuotaPerSecUSec=250000"},
		"unified without a quota": {r: unified(cgroups.Resources{}, "cpu.max=max 50000\n"), want: "CPUQuotaPeriodUSec=50000 CPUQuotaPerSecUSec=" + infinity},
		"unified, otherwise":      {r: unified(cgroups.Resources{}, "memory.max=1G", "cpu.weight=0", "cpu.max=x", "io.weight=default 5", "memory.oom.group=1")},
		"unified on v1":           {r: unified(cgroups.Resources{}, "memory.max=9"), v1: true},
	} {
		t.Run(name, func(t *testing.T) {
			props, _, err := systemd.Properties(test.r, test.v1, test.formula)
			require.NoError(t, err)
			assert.Equal(t, test.want, line(props))
		})
	}
}

func unified(r cgroups.Resources, files ...string) cgroups.Resources {
	r.Unified = map[string]string{}
	for _, f := range files {
		name, text, _ := strings.Cut(f, "=")
		r.Unified[name] = text
	}
	return r
}

// Files without a property remain in Resources, with the quota as systemd rounds it.
func TestPropertiesKeepUnsupportedFiles(t *testing.T) {
	given := unified(cgroups.Resources{CPUQuota: 12_345, OOMGroup: new(bool)}, "memory.max=9", "io.weight=5")
	_, rest, err := systemd.Properties(given, false, cgroups.WeightLogQuadratic)
	require.NoError(t, err)
	want := cgroups.Resources{CPUQuota: 13_000, CPUPeriod: 100_000, MemoryMax: new(int64(9)), OOMGroup: given.OOMGroup}
	assert.Equal(t, unified(want, "io.weight=5"), rest)
	assert.Len(t, given.Unified, 2, "the argument is not modified")
}

func TestPropertiesRejectsInvalidCPULists(t *testing.T) {
	for _, r := range []cgroups.Resources{{CpusetCPUs: "a"}, {CpusetMems: "3-1"}, {CpusetCPUs: "99999999"}} {
		_, _, err := systemd.Properties(r, false, cgroups.WeightLogQuadratic)
		assert.Error(t, err, "%+v", r)
	}
}

// FuzzQuota checks that systemd and the file get an equal quota, at least the requested one.
func FuzzQuota(f *testing.F) {
	f.Add(int64(1100), uint64(100_000))
	f.Add(int64(-1), uint64(0))
	f.Add(int64(1)<<50, uint64(3))
	f.Fuzz(func(t *testing.T, quota int64, period uint64) {
		if quota <= 0 || quota > 1<<40 || period < cgroups.MinPeriod || period > cgroups.MaxPeriod {
			t.Skip("not accepted by the kernel")
		}
		props, r, err := systemd.Properties(cgroups.Resources{CPUQuota: quota, CPUPeriod: period}, false, cgroups.WeightLogQuadratic)
		require.NoError(t, err)
		perSec := props[1].Value.Value().(uint64)
		assert.Equal(t, period, props[0].Value.Value())
		assert.Zero(t, perSec%10_000, "systemd rounds to whole percents of a CPU")
		assert.GreaterOrEqual(t, r.CPUQuota, quota)
		assert.LessOrEqual(t, perSec*period/1_000_000, uint64(r.CPUQuota), "the quota in the file is at least that of systemd")
		assert.Less(t, uint64(r.CPUQuota)*1_000_000, (perSec+1)*period+1_000_000, "nor more")
	})
}
