// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest

import (
	"slices"

	"github.com/seed81659283/nodeagent/cgroups"
)

func checkApplyCreatesParents(t *trial) {
	t.mustApply("a/b/c", cgroups.Resources{})
	for _, p := range []cgroups.Path{"a", "a/b", "a/b/c"} {
		t.requireExists(p, true, ruleCreate)
	}
	t.requireExists("b", false, ruleCreate)
	t.mustApply("a/b/d", cgroups.Resources{})
	t.Hold(slices.Equal(t.readChildren("a/b"), []string{"c", "d"}), ruleCreate, "a/b has the children %v, want c and d", t.readChildren("a/b"))
}

func checkApplyRepeats(t *trial) {
	t.needControllers("cpu", "pids")
	r := cgroups.Resources{CPUShares: 512, CPUQuota: 20_000, CPUPeriod: 50_000, PidsMax: new(int64(77))}
	for range 3 {
		t.Succeed(t.driver.Apply(t.ctx, "a", r), ruleAgain, "Apply")
		got := t.readLimits("a")
		t.Hold(got.CPUQuota == 20_000 && got.CPUPeriod == 50_000, ruleAgain, "cpu quota and period are %d and %d", got.CPUQuota, got.CPUPeriod)
		t.requireLimit(got.PidsMax, 77, ruleAgain, "PidsMax")
	}
	r.PidsMax = new(int64(78))
	t.mustApply("a", r)
	t.requireLimit(t.readLimits("a").PidsMax, 78, ruleAgain, "PidsMax")
}

func checkApplyKeepsUnsetFields(t *trial) {
	t.needControllers("cpu", "pids")
	t.mustApply("a", cgroups.Resources{CPUShares: 512, CPUQuota: 20_000, CPUPeriod: 50_000, PidsMax: new(int64(77))})
	before := t.readLimits("a")
	t.mustApply("a", cgroups.Resources{PidsMax: new(int64(78))})
	t.mustApply("a", cgroups.Resources{})
	t.mustApply("a/below", cgroups.Resources{CPUShares: 2, PidsMax: new(int64(5))})
	after := t.readLimits("a")
	t.requireLimit(after.PidsMax, 78, ruleLeave, "PidsMax")
	t.Hold(before.CPUShares == after.CPUShares, ruleLeave, "CPUShares went from %d to %d", before.CPUShares, after.CPUShares)
	t.Hold(before.CPUQuota == after.CPUQuota, ruleLeave, "CPUQuota went from %d to %d", before.CPUQuota, after.CPUQuota)
	t.Hold(before.CPUPeriod == after.CPUPeriod, ruleLeave, "CPUPeriod went from %d to %d", before.CPUPeriod, after.CPUPeriod)

	t.mustApply("a", cgroups.Resources{CPUPeriod: 40_000})
	after = t.readLimits("a")
	t.Hold(after.CPUQuota == 20_000 && after.CPUPeriod == 40_000, ruleLeave,
		"after a period of 40000 alone, quota and period are %d and %d", after.CPUQuota, after.CPUPeriod)
}

func checkApplyEmpty(t *trial) {
	t.needControllers("cpu", "pids")
	t.mustApply("a", cgroups.Resources{})
	got := t.readLimits("a")
	t.Hold(got.CPUQuota == cgroups.Unlimited, ruleLeave, "CPUQuota is %d in a new cgroup", got.CPUQuota)
	t.requireLimit(got.PidsMax, cgroups.Unlimited, ruleLeave, "PidsMax")
}

func checkApplyUnlimited(t *trial) {
	t.needControllers("cpu", "memory", "pids")
	t.mustApply("a", cgroups.Resources{
		CPUQuota: 20_000, CPUPeriod: 50_000, MemoryMax: new(int64(64 * mib)), PidsMax: new(int64(77)),
	})
	t.mustApply("a", cgroups.Resources{
		CPUQuota: cgroups.Unlimited, MemoryMax: new(int64(cgroups.Unlimited)), PidsMax: new(int64(cgroups.Unlimited)),
	})
	got := t.readLimits("a")
	t.Hold(got.CPUQuota == cgroups.Unlimited, ruleUnlimited, "CPUQuota is %d", got.CPUQuota)
	t.requireLimit(got.MemoryMax, cgroups.Unlimited, ruleUnlimited, "MemoryMax")
	t.requireLimit(got.PidsMax, cgroups.Unlimited, ruleUnlimited, "PidsMax")
}

func checkApplyInvalid(t *trial) {
	t.needControllers("cpu")
	const p = "a/b"
	for name, r := range map[string]cgroups.Resources{
		"a period of 2 s":         {CPUQuota: 20_000, CPUPeriod: 2_000_000},
		"a quota below 1 ms":      {CPUQuota: 10, CPUPeriod: 100_000},
		"fewer than no processes": {PidsMax: new(int64(-2))},
		"huge pages of 3 metres":  {Hugetlb: map[string]int64{"3m": 3 * mib}},
		"CPUs that are no number": {CpusetCPUs: "all"},
	} {
		t.requireRefused(t.driver.Apply(t.ctx, p, r), p, ruleRange, "Apply with "+name)
	}
	if len(t.fixture.HugepageSizes) > 0 {
		err := t.driver.Apply(t.ctx, p, cgroups.Resources{Hugetlb: map[string]int64{"4TB": 0}})
		t.requireRefused(err, p, ruleEnforce, "Apply with a limit on huge pages of a size that the host has not")
	}
}

func checkApplyUnified(t *trial) {
	t.needV2()
	t.needControllers("memory", "pids")
	t.mustApply("a", cgroups.Resources{
		PidsMax: new(int64(77)),
		Unified: map[string]string{"memory.high": "8388608", "memory.low": "4194304", "pids.max": "78"},
	})
	got := t.readLimits("a")
	t.requireLimit(got.MemoryHigh, 8*mib, ruleUnified, "MemoryHigh")
	t.requireLimit(got.MemoryLow, 4*mib, ruleUnified, "MemoryLow")
	t.requireLimit(got.PidsMax, 78, ruleUnified, "PidsMax")
	for _, file := range []string{"../b/memory.high", "memory.high/../x", "cgroup.kill", "cgroup.procs", ""} {
		err := t.driver.Apply(t.ctx, "a", cgroups.Resources{Unified: map[string]string{file: "1"}})
		t.requireRefused(err, "a", ruleUnified, "Apply with the file \""+file+"\"")
	}
}

func checkV1IgnoresV2Fields(t *trial) {
	if t.fixture.Mode == V2 {
		t.Skip("cgroup v2 has it all")
	}
	t.mustApply("a", cgroups.Resources{
		MemoryMin: new(int64(mib)), MemoryLow: new(int64(mib)), MemoryHigh: new(int64(mib)), OOMGroup: new(true),
		Unified: map[string]string{"memory.high": "8388608"},
	})
	got := t.readLimits("a")
	t.Hold(got.MemoryMin == nil && got.MemoryLow == nil && got.MemoryHigh == nil && got.OOMGroup == nil, ruleOnlyV2,
		"v1 has the limits %v", got)
}
