// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest

import (
	"slices"

	"github.com/seed81659283/nodeagent/cgroups"
)

// killer returns the driver as a Killer.
func (t *trial) killer() cgroups.Killer {
	t.Helper()
	k, ok := t.d.(cgroups.Killer)
	if !ok {
		t.Skip("the driver is no cgroups.Killer")
	}
	return k
}

// freezer returns the driver as a Freezer.
func (t *trial) freezer() cgroups.Freezer {
	t.Helper()
	f, ok := t.d.(cgroups.Freezer)
	if !ok {
		t.Skip("the driver is no cgroups.Freezer")
	}
	return f
}

func killKeeps(t *trial) {
	k := t.killer()
	t.apply("a/b", cgroups.Resources{})
	t.apply("a/c", cgroups.Resources{})
	t.start("a/b", 0)
	t.start("a/b", 0)
	other := t.start("a/c", 0)
	t.Succeed(k.Kill(t.ctx, "a/b"), ruleKill, "Kill")
	t.exists("a/b", true, ruleKill)
	t.Hold(len(t.procs("a/b")) == 0, ruleKill, "Kill has returned and the processes %v run", t.procs("a/b"))
	t.Hold(slices.Equal(t.procs("a"), []int{other}), ruleKill, "the neighbour has the processes %v, want %d", t.procs("a"), other)
	t.Succeed(k.Kill(t.ctx, "a"), ruleKill, "Kill of what runs below")
	t.Hold(len(t.procs("a")) == 0, ruleKill, "Kill has returned and the processes %v run", t.procs("a"))
	t.Succeed(k.Kill(t.ctx, "a"), ruleKill, "Kill of nothing")
	t.start("a/b", 0) // and it can be used again
}

func killAbsent(t *trial) {
	k := t.killer()
	for _, p := range []cgroups.Path{"a", "a/b"} {
		t.Succeed(k.Kill(t.ctx, p), ruleKill, "Kill of what is absent")
		t.exists(p, false, ruleKill)
	}
}

func freezeThaws(t *trial) {
	f := t.freezer()
	t.apply("a/b", cgroups.Resources{})
	t.apply("c", cgroups.Resources{})
	pid := t.start("a/b", 0)
	for range 2 {
		t.Succeed(f.Freeze(t.ctx, "a"), ruleFreeze, "Freeze")
		for p, want := range map[cgroups.Path]bool{"a": true, "a/b": true, "c": false} {
			t.Hold(t.stats(p).Events.Frozen == want, ruleFrozen, "cgroup %s is frozen: %v, want %v", p, !want, want)
		}
	}
	t.Hold(slices.Equal(t.procs("a"), []int{pid}), ruleFreeze, "a frozen cgroup has the processes %v, want %d", t.procs("a"), pid)
	for range 2 {
		t.Succeed(f.Thaw(t.ctx, "a"), ruleThaw, "Thaw")
		for _, p := range []cgroups.Path{"a", "a/b"} {
			t.Hold(!t.stats(p).Events.Frozen, ruleFrozen, "cgroup %s is frozen after Thaw", p)
		}
	}
}

func freezeKills(t *trial) {
	f, k := t.freezer(), t.killer()
	t.apply("a/b", cgroups.Resources{})
	t.start("a/b", 0)
	t.Succeed(f.Freeze(t.ctx, "a/b"), ruleFreeze, "Freeze")
	t.Succeed(k.Kill(t.ctx, "a"), ruleFrozenKill, "Kill of what is frozen")
	t.Hold(len(t.procs("a")) == 0, ruleKill, "Kill has returned and the processes %v run", t.procs("a"))
}
