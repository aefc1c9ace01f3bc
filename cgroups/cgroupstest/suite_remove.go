// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest

import (
	"slices"

	"github.com/seed81659283/nodeagent/cgroups"
)

func removeAbsent(t *trial) {
	for _, p := range []cgroups.Path{"a", "a/b/c"} {
		t.Succeed(t.d.Remove(t.ctx, p), ruleRemoveGone, "Remove of what never was")
	}
	t.apply("a", cgroups.Resources{})
	for range 2 {
		t.Succeed(t.d.Remove(t.ctx, "a"), ruleRemoveGone, "Remove")
		t.exists("a", false, ruleRemove)
	}
}

func removeTree(t *trial) {
	for _, p := range []cgroups.Path{"a/b/c/d", "a/b/e", "a/f"} {
		t.apply(p, cgroups.Resources{})
	}
	t.remove("a/b")
	t.exists("a/b", false, ruleRemove)
	t.Hold(slices.Equal(t.children("a"), []string{"f"}), ruleRemove, "a has the children %v, want f alone", t.children("a"))
	t.remove("a")
	t.Hold(len(t.children("")) == 0, ruleRemove, "the root has the children %v, want none", t.children(""))
}

func removeNeighbours(t *trial) {
	for _, p := range []cgroups.Path{"a/pod1", "a/pod10", "a/pod1-b"} {
		t.apply(p, cgroups.Resources{})
	}
	pid := t.start("a/pod10", 0)
	t.remove("a/pod1")
	t.Hold(slices.Equal(t.children("a"), []string{"pod1-b", "pod10"}), ruleRemove, "a has the children %v", t.children("a"))
	t.Hold(slices.Equal(t.procs("a/pod10"), []int{pid}), ruleRemove, "a/pod10 has the processes %v, want %d", t.procs("a/pod10"), pid)
}

func removeKills(t *trial) {
	t.apply("a/b/c", cgroups.Resources{})
	t.apply("a/d", cgroups.Resources{})
	for _, p := range []cgroups.Path{"a/b/c", "a/d", "a/d"} {
		t.start(p, 0)
	}
	t.remove("a")
	t.exists("a", false, ruleRemove)
	t.Hold(len(t.procs("")) == 0, ruleRemove, "the processes %v run on", t.procs(""))
}

func removeFrozen(t *trial) {
	f := t.freezer()
	t.apply("a/b", cgroups.Resources{})
	t.start("a/b", 0)
	t.Succeed(f.Freeze(t.ctx, "a"), ruleFreeze, "Freeze")
	t.Succeed(t.d.Remove(t.ctx, "a"), ruleFrozenKill, "Remove of what is frozen")
	t.exists("a", false, ruleFrozenKill)
	t.Hold(len(t.procs("")) == 0, ruleFrozenKill, "the processes %v run on", t.procs(""))
}

func removeRoot(t *trial) {
	t.apply("a", cgroups.Resources{})
	t.refused(t.d.Remove(t.ctx, ""), "", ruleRemoveGone, "Remove of the root")
	t.exists("a", true, ruleRemoveGone)
}

func removeAnew(t *trial) {
	t.need("cpu", "pids")
	t.apply("a/b", cgroups.Resources{CPUQuota: 20_000, PidsMax: new(int64(77))})
	t.remove("a")
	t.apply("a/b", cgroups.Resources{})
	got := t.limits("a/b")
	t.number(got.PidsMax, cgroups.Unlimited, ruleCreate, "PidsMax of a new cgroup")
	t.Hold(got.CPUQuota == cgroups.Unlimited, ruleCreate, "CPUQuota of a new cgroup is %d", got.CPUQuota)
	s := t.stats("a/b")
	t.Hold(s.CPU.Usage == 0 && s.Memory.Events == cgroups.MemoryEvents{}, ruleNewCounts, "a new cgroup has used %d ns and seen %+v", s.CPU.Usage, s.Memory.Events)
}
