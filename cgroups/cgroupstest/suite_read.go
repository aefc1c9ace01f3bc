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

func listChildren(t *trial) {
	for _, p := range []cgroups.Path{"c", "a", "b/y", "b/x", "b/x/deep", "a10", "a9", "pod1234-ab"} {
		t.apply(p, cgroups.Resources{})
	}
	for p, want := range map[cgroups.Path][]string{
		"": {"a", "a10", "a9", "b", "c", "pod1234-ab"}, "b": {"x", "y"}, "b/x": {"deep"}, "a": nil,
	} {
		got := t.children(p)
		t.Hold(slices.Equal(got, want), ruleChildren, "Children of %q are %v, want %v", string(p), got, want)
	}
}

func listProcs(t *trial) {
	t.apply("a/b/c", cgroups.Resources{})
	t.apply("a/d", cgroups.Resources{})
	t.Hold(len(t.procs("a")) == 0, ruleProcs, "Procs of empty cgroups are %v", t.procs("a"))
	one, two, three := t.start("a/d", 0), t.start("a/b/c", 0), t.start("a/d", 0)
	for p, want := range map[cgroups.Path][]int{"": {one, two, three}, "a": {one, two, three}, "a/b": {two}, "a/d": {one, three}} {
		slices.Sort(want)
		got := t.procs(p)
		t.Hold(slices.Equal(got, want), ruleProcs, "Procs of %q are %v, want %v", string(p), got, want)
	}
}

func listAbsent(t *trial) {
	t.apply("a", cgroups.Resources{})
	for _, p := range []cgroups.Path{"b", "a/b", "b/c"} {
		for _, c := range t.calls() {
			if c.absent {
				continue
			}
			rule := ruleListGone
			if c.reads {
				rule = ruleReadGone
			}
			err := c.call(t.ctx, p)
			t.refused(err, p, rule, c.name+" of what is absent")
			t.Hold(errors.Is(err, fs.ErrNotExist), rule, "%s of what is absent: %v", c.name, err)
		}
	}
}

func statsPopulated(t *trial) {
	t.apply("a/b", cgroups.Resources{})
	t.apply("a/c", cgroups.Resources{})
	t.Hold(!t.stats("a").Events.Populated, rulePopulated, "an empty cgroup is populated")
	t.start("a/b", 0)
	for p, want := range map[cgroups.Path]bool{"a": true, "a/b": true, "a/c": false} {
		s := t.stats(p)
		t.Hold(s.Events.Populated == want, rulePopulated, "cgroup %s is populated: %v, want %v", p, s.Events.Populated, want)
		if slices.Contains(t.f.Controllers, "pids") {
			t.Hold(s.Pids.Current > 0 == want, ruleBelow, "cgroup %s has %d processes and threads", p, s.Pids.Current)
		}
	}
}

func statsMemory(t *trial) {
	t.need("memory")
	t.apply("a/b", cgroups.Resources{MemoryMax: new(int64(256 * mib))})
	t.apply("a/c", cgroups.Resources{MemoryMax: new(int64(256 * mib))})
	t.start("a/b", 24*mib)
	t.start("a/c", 24*mib)
	t.Until(ruleStats, func() (bool, string) {
		all, b, c := t.stats("a").Memory.Current, t.stats("a/b").Memory.Current, t.stats("a/c").Memory.Current
		missing := fmt.Sprintf("a, a/b and a/c use %d, %d and %d bytes, want 48 MiB and twice 24 MiB at least", all, b, c)
		return b >= 24*mib && c >= 24*mib && all >= 48*mib, missing
	})
}

func statsOOM(t *trial) {
	t.need("memory")
	r := cgroups.Resources{MemoryMax: new(int64(32 * mib))}
	if t.f.Swap {
		r.SwapMax = new(int64(0))
	}
	t.apply("a/b", r)
	t.start("a/b", 128*mib)
	t.Until(ruleOOMKill, func() (bool, string) {
		pids, kills := t.procs("a/b"), t.stats("a/b").Memory.Events.OOMKill
		return len(pids) == 0 && kills > 0, fmt.Sprintf("the processes %v run, %d were killed", pids, kills)
	})
	s := t.stats("a/b")
	t.Hold(s.Memory.Events.Max > 0, ruleOOMKill, "the limit was hit %d times, want more", s.Memory.Events.Max)
	if t.f.Mode == V2 {
		above := t.stats("a").Memory.Events
		t.Hold(above.OOMKill == s.Memory.Events.OOMKill, ruleBelow, "the parent counts %+v, the cgroup %+v", above, s.Memory.Events)
	}
}
