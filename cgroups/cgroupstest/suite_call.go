// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/seed81659283/nodeagent/cgroups"
)

// operation is one method of the driver.
type operation struct {
	name   string
	absent bool // an absent cgroup is no error, or none that is documented
	reads  bool // of a Reader
	call   func(ctx context.Context, p cgroups.Path) error
}

// calls returns all methods that the driver has.
func (t *trial) calls() []operation {
	all := []operation{
		{"Apply", true, false, func(ctx context.Context, p cgroups.Path) error { return t.d.Apply(ctx, p, cgroups.Resources{}) }},
		{"Remove", true, false, t.d.Remove},
		{"Children", false, false, func(ctx context.Context, p cgroups.Path) error {
			_, err := t.d.Children(ctx, p)
			return err
		}},
		{"Procs", false, false, func(ctx context.Context, p cgroups.Path) error {
			_, err := t.d.Procs(ctx, p)
			return err
		}},
		{"Limits", false, true, func(ctx context.Context, p cgroups.Path) error {
			_, err := t.d.Limits(ctx, p)
			return err
		}},
		{"Stats", false, true, func(ctx context.Context, p cgroups.Path) error {
			_, err := t.d.Stats(ctx, p)
			return err
		}},
	}
	if k, ok := t.d.(cgroups.Killer); ok {
		all = append(all, operation{"Kill", true, false, k.Kill})
	}
	if f, ok := t.d.(cgroups.Freezer); ok {
		all = append(all, operation{"Freeze", true, false, f.Freeze}, operation{"Thaw", true, false, f.Thaw})
	}
	if s, ok := t.d.(cgroups.Sampler); ok {
		all = append(all, operation{"Sample", false, true, func(ctx context.Context, p cgroups.Path) error {
			_, err := s.Sample(ctx, p, "", cgroups.PartAll)
			return err
		}}, operation{"ChildDirs", false, false, func(ctx context.Context, p cgroups.Path) error {
			_, err := s.ChildDirs(ctx, p)
			return err
		}})
	}
	if r, ok := t.d.(cgroups.Reclaimer); ok {
		all = append(all, operation{"Reclaim", true, false, func(ctx context.Context, p cgroups.Path) error {
			_, err := r.Reclaim(ctx, p, 4096)
			return err
		}})
	}
	return all
}

func pathEscapes(t *trial) {
	t.apply("a/b", cgroups.Resources{})
	for _, p := range []cgroups.Path{"..", ".", "../x", "a/..", "a/../..", "a/./b", "/a", "a/", "/", "//", "a//b", "a\x00b", "a/b\x00", "a\nb"} {
		for _, c := range t.calls() {
			t.refused(c.call(t.ctx, p), p, ruleValidate, fmt.Sprintf("%s of %q", c.name, string(p)))
		}
	}
	t.exists("a/b", true, ruleValidate)
	t.Hold(slices.Equal(t.children(""), []string{"a"}), ruleValidate, "the root has the children %v, want a alone", t.children(""))
}

func contextEnded(t *trial) {
	t.apply("a", cgroups.Resources{})
	ctx, cancel := context.WithCancel(t.ctx)
	cancel()
	for _, c := range t.calls() {
		err := c.call(ctx, "a")
		t.refused(err, "a", ruleContext, c.name+" with a context that has ended")
		t.Hold(errors.Is(err, context.Canceled), ruleContext, "%s with a context that has ended: %v", c.name, err)
	}
	t.refused(t.d.Apply(ctx, "b", cgroups.Resources{}), "b", ruleContext, "Apply with a context that has ended")
	t.exists("a", true, ruleContext)
	t.exists("b", false, ruleContext)
}

func writersOfOne(t *trial) {
	t.need("cpu", "pids")
	t.together(8, ruleConcurrent, func(ctx context.Context, i int) error {
		for range 10 {
			r := cgroups.Resources{CPUShares: 100, PidsMax: new(int64(100 + i)), CPUQuota: 50_000}
			if err := t.d.Apply(ctx, "a/b/c", r); err != nil {
				return err
			}
			if _, err := t.d.Limits(ctx, "a/b/c"); err != nil {
				return err
			}
		}
		return nil
	})
	got := t.limits("a/b/c")
	t.Hold(got.PidsMax != nil && *got.PidsMax >= 100 && *got.PidsMax < 108, ruleConcurrent, "PidsMax is %v, want what one of them wrote", got.PidsMax)
	t.Hold(got.CPUQuota == 50_000, ruleConcurrent, "CPUQuota is %d, want what all of them wrote", got.CPUQuota)
}

func writersOfSiblings(t *trial) {
	const writers, each = 8, 8
	t.together(writers, ruleConcurrent, func(ctx context.Context, i int) error {
		for j := range each {
			p := cgroups.Path("a/b").Join(fmt.Sprintf("pod%d-%d", i, j))
			if err := t.d.Apply(ctx, p, cgroups.Resources{CPUShares: 100}); err != nil {
				return err
			}
		}
		return nil
	})
	t.Hold(len(t.children("a/b")) == writers*each, ruleConcurrent, "%d cgroups were made, want %d", len(t.children("a/b")), writers*each)
}

func writersRace(t *trial) {
	t.together(6, ruleConcurrent, func(ctx context.Context, i int) error {
		for range 15 {
			if i%2 == 0 {
				if err := t.d.Remove(ctx, "a/b"); err != nil {
					return err
				}
				continue
			}
			// It may lose every race and say so, but it may neither hang nor leave anything that cannot be removed.
			err := t.d.Apply(ctx, cgroups.Path("a/b").Join(fmt.Sprint("c", i)), cgroups.Resources{CPUShares: 100})
			if _, ok := errors.AsType[*cgroups.Error](err); err != nil && (!ok || ctx.Err() != nil) {
				return err
			}
		}
		return nil
	})
	t.apply("a/b/c", cgroups.Resources{})
	t.remove("a")
	t.exists("a", false, ruleRemove)
}

func removersRace(t *trial) {
	for i := range 20 {
		p := cgroups.Path("a/b").Join(fmt.Sprint("c", i), "d")
		t.apply(p, cgroups.Resources{})
	}
	t.together(8, ruleRemoveGone, func(ctx context.Context, i int) error {
		for j := range 20 {
			if err := t.d.Remove(ctx, cgroups.Path("a/b").Join(fmt.Sprint("c", (i+j)%20))); err != nil {
				return err
			}
		}
		return t.d.Remove(ctx, "a")
	})
	t.exists("a", false, ruleRemove)
}
