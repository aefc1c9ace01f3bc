// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest

import (
	"slices"

	"github.com/seed81659283/nodeagent/cgroups"
)

// needKiller returns the driver as a cgroups.Killer. It skips the test if the driver does not implement this interface.
func (t *trial) needKiller() cgroups.Killer {
	t.Helper()
	k, ok := t.driver.(cgroups.Killer)
	if !ok {
		t.Skip("the driver is no cgroups.Killer")
	}
	return k
}

// needFreezer returns the driver as a cgroups.Freezer. It skips the test if the driver does not implement this interface.
func (t *trial) needFreezer() cgroups.Freezer {
	t.Helper()
	f, ok := t.driver.(cgroups.Freezer)
	if !ok {
		t.Skip("the driver is no cgroups.Freezer")
	}
	return f
}

func checkKill(t *trial) {
	k := t.needKiller()
	t.mustApply("a/b", cgroups.Resources{})
	t.mustApply("a/c", cgroups.Resources{})
	t.startProc("a/b", 0)
	t.startProc("a/b", 0)
	other := t.startProc("a/c", 0)
	t.Succeed(k.Kill(t.ctx, "a/b"), ruleKill, "Kill")
	t.requireExists("a/b", true, ruleKill)
	t.Hold(len(t.readProcs("a/b")) == 0, ruleKill, "Kill has returned and the processes %v run", t.readProcs("a/b"))
	t.Hold(slices.Equal(t.readProcs("a"), []int{other}), ruleKill, "the neighbour has the processes %v, want %d", t.readProcs("a"), other)
	t.Succeed(k.Kill(t.ctx, "a"), ruleKill, "Kill of what runs below")
	t.Hold(len(t.readProcs("a")) == 0, ruleKill, "Kill has returned and the processes %v run", t.readProcs("a"))
	t.Succeed(k.Kill(t.ctx, "a"), ruleKill, "Kill of nothing")
	t.startProc("a/b", 0) // the cgroup can be used again
}

func checkKillAbsent(t *trial) {
	k := t.needKiller()
	for _, p := range []cgroups.Path{"a", "a/b"} {
		t.Succeed(k.Kill(t.ctx, p), ruleKill, "Kill of what is absent")
		t.requireExists(p, false, ruleKill)
	}
}

func checkFreezeThaw(t *trial) {
	f := t.needFreezer()
	t.mustApply("a/b", cgroups.Resources{})
	t.mustApply("c", cgroups.Resources{})
	pid := t.startProc("a/b", 0)
	for range 2 {
		t.Succeed(f.Freeze(t.ctx, "a"), ruleFreeze, "Freeze")
		for p, want := range map[cgroups.Path]bool{"a": true, "a/b": true, "c": false} {
			t.Hold(t.readStats(p).Events.Frozen == want, ruleFrozen, "cgroup %s is frozen: %v, want %v", p, !want, want)
		}
	}
	t.Hold(slices.Equal(t.readProcs("a"), []int{pid}), ruleFreeze, "a frozen cgroup has the processes %v, want %d", t.readProcs("a"), pid)
	for range 2 {
		t.Succeed(f.Thaw(t.ctx, "a"), ruleThaw, "Thaw")
		for _, p := range []cgroups.Path{"a", "a/b"} {
			t.Hold(!t.readStats(p).Events.Frozen, ruleFrozen, "cgroup %s is frozen after Thaw", p)
		}
	}
}

func checkKillFrozen(t *trial) {
	f, k := t.needFreezer(), t.needKiller()
	t.mustApply("a/b", cgroups.Resources{})
	t.startProc("a/b", 0)
	t.Succeed(f.Freeze(t.ctx, "a/b"), ruleFreeze, "Freeze")
	t.Succeed(k.Kill(t.ctx, "a"), ruleFrozenKill, "Kill of what is frozen")
	t.Hold(len(t.readProcs("a")) == 0, ruleKill, "Kill has returned and the processes %v run", t.readProcs("a"))
}
