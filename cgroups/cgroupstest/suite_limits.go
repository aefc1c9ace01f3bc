// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest

import (
	"fmt"

	"github.com/seed81659283/nodeagent/cgroups"
)

func checkCPUShares(t *trial) {
	t.needControllers("cpu")
	for _, shares := range []uint64{2, 3, 102, 512, 1024, 2048, 100_000, 262144} {
		t.mustApply("a", cgroups.Resources{CPUShares: shares})
		want := shares
		if t.fixture.Mode == V2 {
			want = cgroups.SharesFromWeight(cgroups.WeightFromShares(shares, t.fixture.WeightFormula), t.fixture.WeightFormula)
		}
		got := t.readLimits("a").CPUShares
		t.Hold(got == want, ruleShares, "CPUShares of %d read back as %d, want %d", shares, got, want)
	}
}

func checkCPUQuota(t *trial) {
	t.needControllers("cpu")
	for _, c := range []struct {
		quota      int64
		period     uint64
		wantPeriod uint64
	}{
		{20_000, 0, 100_000},
		{1000, 1000, 1000},
		{1_500_000, 1_000_000, 1_000_000},
		{1000, 100_000, 100_000},
		{50_000, 0, 100_000},
	} {
		t.mustApply("a", cgroups.Resources{CPUQuota: c.quota, CPUPeriod: c.period})
		got := t.readLimits("a")
		t.Hold(got.CPUQuota == c.quota && got.CPUPeriod == c.wantPeriod, rulePeriod,
			"quota %d in a period of %d read back as %d in %d", c.quota, c.period, got.CPUQuota, got.CPUPeriod)
	}
}

func checkCpuset(t *trial) {
	t.needControllers("cpuset")
	t.mustApply("a/b", cgroups.Resources{CpusetCPUs: "0", CpusetMems: "0"})
	got := t.readLimits("a/b")
	t.Hold(got.CpusetCPUs == "0" && got.CpusetMems == "0", ruleLimits, "CPUs 0 and nodes 0 read back as %q and %q", got.CpusetCPUs, got.CpusetMems)
}

func checkMemoryLimits(t *trial) {
	t.needControllers("memory")
	r := cgroups.Resources{MemoryMax: new(int64(64*mib + 1))}
	if t.fixture.Mode == V2 {
		r.MemoryMin, r.MemoryLow, r.MemoryHigh = new(int64(8*mib+1)), new(int64(16*mib+1)), new(int64(32*mib+1))
		r.OOMGroup = new(true)
	}
	t.mustApply("a", r)
	got := t.readLimits("a")
	t.requireLimit(got.MemoryMax, 64*mib, ruleLimits, "MemoryMax")
	if t.fixture.Mode == V2 {
		t.requireLimit(got.MemoryMin, 8*mib, ruleLimits, "MemoryMin")
		t.requireLimit(got.MemoryLow, 16*mib, ruleLimits, "MemoryLow")
		t.requireLimit(got.MemoryHigh, 32*mib, ruleLimits, "MemoryHigh")
		t.Hold(got.OOMGroup != nil && *got.OOMGroup, ruleLimits, "OOMGroup reads back as %v, want true", got.OOMGroup)
	}
	for _, to := range []int64{128 * mib, 32 * mib} {
		t.mustApply("a", cgroups.Resources{MemoryMax: &to})
		t.requireLimit(t.readLimits("a").MemoryMax, to, ruleAgain, "MemoryMax")
	}
}

func checkSwapLimit(t *trial) {
	t.needControllers("memory")
	if !t.fixture.Swap {
		t.Skip("the host limits no swap")
	}
	for _, c := range []struct{ memory, swap int64 }{{64 * mib, 0}, {64 * mib, 16 * mib}, {128 * mib, 8 * mib}, {32 * mib, 32 * mib}} {
		t.mustApply("a", cgroups.Resources{MemoryMax: &c.memory, SwapMax: &c.swap})
		got := t.readLimits("a")
		t.requireLimit(got.MemoryMax, c.memory, ruleLimits, "MemoryMax")
		t.requireLimit(got.SwapMax, c.swap, ruleLimits, "SwapMax")
	}
}

func checkPidsLimit(t *trial) {
	t.needControllers("pids")
	for _, pids := range []int64{1, 1000} {
		t.mustApply("a", cgroups.Resources{PidsMax: &pids})
		t.requireLimit(t.readLimits("a").PidsMax, pids, ruleLimits, "PidsMax")
	}
}

func checkHugetlbLimits(t *trial) {
	if len(t.fixture.HugepageSizes) == 0 {
		t.Skip("the host limits no huge pages")
	}
	for _, size := range t.fixture.HugepageSizes {
		page, err := cgroups.ParseHugepageSize(size)
		t.Succeed(err, ruleLimits, "ParseHugepageSize")
		for _, bytes := range []int64{0, int64(2 * page), cgroups.Unlimited} {
			t.mustApply("a", cgroups.Resources{Hugetlb: map[string]int64{size: bytes}})
			got, ok := t.readLimits("a").Hugetlb[size]
			t.Hold(ok && got == bytes, ruleLimits, "Hugetlb %s", fmt.Sprintf("of %s is %d (set: %v), want %d", size, got, ok, bytes))
		}
	}
}
