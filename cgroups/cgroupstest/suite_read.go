// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/seed81659283/nodeagent/cgroups"
)

func checkChildren(t *trial) {
	for _, p := range []cgroups.Path{"c", "a", "b/y", "b/x", "b/x/deep", "a10", "a9", "pod1234-ab"} {
		t.mustApply(p, cgroups.Resources{})
	}
	for p, want := range map[cgroups.Path][]string{
		"": {"a", "a10", "a9", "b", "c", "pod1234-ab"}, "b": {"x", "y"}, "b/x": {"deep"}, "a": nil,
	} {
		got := t.readChildren(p)
		t.Hold(slices.Equal(got, want), ruleChildren, "Children of %q are %v, want %v", string(p), got, want)
	}
}

func checkProcs(t *trial) {
	t.mustApply("a/b/c", cgroups.Resources{})
	t.mustApply("a/d", cgroups.Resources{})
	t.Hold(len(t.readProcs("a")) == 0, ruleProcs, "Procs of empty cgroups are %v", t.readProcs("a"))
	one, two, three := t.startProc("a/d", 0), t.startProc("a/b/c", 0), t.startProc("a/d", 0)
	for p, want := range map[cgroups.Path][]int{"": {one, two, three}, "a": {one, two, three}, "a/b": {two}, "a/d": {one, three}} {
		slices.Sort(want)
		got := t.readProcs(p)
		t.Hold(slices.Equal(got, want), ruleProcs, "Procs of %q are %v, want %v", string(p), got, want)
	}
}

func checkReadAbsent(t *trial) {
	t.mustApply("a", cgroups.Resources{})
	for _, p := range []cgroups.Path{"b", "a/b", "b/c"} {
		for _, c := range t.operations() {
			if c.absent {
				continue
			}
			rule := ruleListGone
			if c.reads {
				rule = ruleReadGone
			}
			err := c.call(t.ctx, p)
			t.requireRefused(err, p, rule, c.name+" of what is absent")
			t.Hold(errors.Is(err, fs.ErrNotExist), rule, "%s of what is absent: %v", c.name, err)
		}
	}
}

func checkPopulated(t *trial) {
	t.mustApply("a/b", cgroups.Resources{})
	t.mustApply("a/c", cgroups.Resources{})
	t.Hold(!t.readStats("a").Events.Populated, rulePopulated, "an empty cgroup is populated")
	t.startProc("a/b", 0)
	for p, want := range map[cgroups.Path]bool{"a": true, "a/b": true, "a/c": false} {
		s := t.readStats(p)
		t.Hold(s.Events.Populated == want, rulePopulated, "cgroup %s is populated: %v, want %v", p, s.Events.Populated, want)
		if slices.Contains(t.fixture.Controllers, "pids") {
			t.Hold(s.Pids.Current > 0 == want, ruleBelow, "cgroup %s has %d processes and threads", p, s.Pids.Current)
		}
	}
}

func checkMemoryUsage(t *trial) {
	t.needControllers("memory")
	t.mustApply("a/b", cgroups.Resources{MemoryMax: new(int64(256 * mib))})
	t.mustApply("a/c", cgroups.Resources{MemoryMax: new(int64(256 * mib))})
	t.startProc("a/b", 24*mib)
	t.startProc("a/c", 24*mib)
	t.Until(ruleStats, func() (bool, string) {
		all, b, c := t.readStats("a").Memory.Current, t.readStats("a/b").Memory.Current, t.readStats("a/c").Memory.Current
		missing := fmt.Sprintf("a, a/b and a/c use %d, %d and %d bytes, want 48 MiB and twice 24 MiB at least", all, b, c)
		return b >= 24*mib && c >= 24*mib && all >= 48*mib, missing
	})
}

func checkOOMKill(t *trial) {
	t.needControllers("memory")
	r := cgroups.Resources{MemoryMax: new(int64(32 * mib))}
	if t.fixture.Swap {
		r.SwapMax = new(int64(0))
	}
	t.mustApply("a/b", r)
	t.startProc("a/b", 128*mib)
	t.Until(ruleOOMKill, func() (bool, string) {
		pids, kills := t.readProcs("a/b"), t.readStats("a/b").Memory.Events.OOMKill
		return len(pids) == 0 && kills > 0, fmt.Sprintf("the processes %v run, %d were killed", pids, kills)
	})
	s := t.readStats("a/b")
	t.Hold(s.Memory.Events.Max > 0, ruleOOMKill, "the limit was hit %d times, want more", s.Memory.Events.Max)
	if t.fixture.Mode == V2 {
		above := t.readStats("a").Memory.Events
		t.Hold(above.OOMKill == s.Memory.Events.OOMKill, ruleBelow, "the parent counts %+v, the cgroup %+v", above, s.Memory.Events)
	}
}
