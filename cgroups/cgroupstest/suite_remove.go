// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest

import (
	"slices"

	"github.com/seed81659283/nodeagent/cgroups"
)

func checkRemoveAbsent(t *trial) {
	for _, p := range []cgroups.Path{"a", "a/b/c"} {
		t.Succeed(t.driver.Remove(t.ctx, p), ruleRemoveGone, "Remove of what never was")
	}
	t.mustApply("a", cgroups.Resources{})
	for range 2 {
		t.Succeed(t.driver.Remove(t.ctx, "a"), ruleRemoveGone, "Remove")
		t.requireExists("a", false, ruleRemove)
	}
}

func checkRemoveDescendants(t *trial) {
	for _, p := range []cgroups.Path{"a/b/c/d", "a/b/e", "a/f"} {
		t.mustApply(p, cgroups.Resources{})
	}
	t.mustRemove("a/b")
	t.requireExists("a/b", false, ruleRemove)
	t.Hold(slices.Equal(t.readChildren("a"), []string{"f"}), ruleRemove, "a has the children %v, want f alone", t.readChildren("a"))
	t.mustRemove("a")
	t.Hold(len(t.readChildren("")) == 0, ruleRemove, "the root has the children %v, want none", t.readChildren(""))
}

func checkRemoveKeepsSiblings(t *trial) {
	for _, p := range []cgroups.Path{"a/pod1", "a/pod10", "a/pod1-b"} {
		t.mustApply(p, cgroups.Resources{})
	}
	pid := t.startProc("a/pod10", 0)
	t.mustRemove("a/pod1")
	t.Hold(slices.Equal(t.readChildren("a"), []string{"pod1-b", "pod10"}), ruleRemove, "a has the children %v", t.readChildren("a"))
	t.Hold(slices.Equal(t.readProcs("a/pod10"), []int{pid}), ruleRemove, "a/pod10 has the processes %v, want %d", t.readProcs("a/pod10"), pid)
}

func checkRemoveKills(t *trial) {
	t.mustApply("a/b/c", cgroups.Resources{})
	t.mustApply("a/d", cgroups.Resources{})
	for _, p := range []cgroups.Path{"a/b/c", "a/d", "a/d"} {
		t.startProc(p, 0)
	}
	t.mustRemove("a")
	t.requireExists("a", false, ruleRemove)
	t.Hold(len(t.readProcs("")) == 0, ruleRemove, "the processes %v run on", t.readProcs(""))
}

func checkRemoveFrozen(t *trial) {
	f := t.needFreezer()
	t.mustApply("a/b", cgroups.Resources{})
	t.startProc("a/b", 0)
	t.Succeed(f.Freeze(t.ctx, "a"), ruleFreeze, "Freeze")
	t.Succeed(t.driver.Remove(t.ctx, "a"), ruleFrozenKill, "Remove of what is frozen")
	t.requireExists("a", false, ruleFrozenKill)
	t.Hold(len(t.readProcs("")) == 0, ruleFrozenKill, "the processes %v run on", t.readProcs(""))
}

func checkRemoveRoot(t *trial) {
	t.mustApply("a", cgroups.Resources{})
	t.requireRefused(t.driver.Remove(t.ctx, ""), "", ruleRemoveGone, "Remove of the root")
	t.requireExists("a", true, ruleRemoveGone)
}

func checkRecreate(t *trial) {
	t.needControllers("cpu", "pids")
	t.mustApply("a/b", cgroups.Resources{CPUQuota: 20_000, PidsMax: new(int64(77))})
	t.mustRemove("a")
	t.mustApply("a/b", cgroups.Resources{})
	got := t.readLimits("a/b")
	t.requireLimit(got.PidsMax, cgroups.Unlimited, ruleCreate, "PidsMax of a new cgroup")
	t.Hold(got.CPUQuota == cgroups.Unlimited, ruleCreate, "CPUQuota of a new cgroup is %d", got.CPUQuota)
	s := t.readStats("a/b")
	t.Hold(s.CPU.Usage == 0 && s.Memory.Events == cgroups.MemoryEvents{}, ruleNewCounts, "a new cgroup has used %d ns and seen %+v", s.CPU.Usage, s.Memory.Events)
}
