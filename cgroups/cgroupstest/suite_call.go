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
	absent bool // an absent cgroup is success, or the documentation does not say
	reads  bool // a method of cgroups.Reader or Sampler
	call   func(ctx context.Context, p cgroups.Path) error
}

// operations returns the methods of the tested driver. Each method is wrapped in a function of a context and a path.
func (t *trial) operations() []operation {
	all := []operation{
		{"Apply", true, false, func(ctx context.Context, p cgroups.Path) error { return t.driver.Apply(ctx, p, cgroups.Resources{}) }},
		{"Remove", true, false, t.driver.Remove},
		{"Children", false, false, func(ctx context.Context, p cgroups.Path) error {
			_, err := t.driver.Children(ctx, p)
			return err
		}},
		{"Procs", false, false, func(ctx context.Context, p cgroups.Path) error {
			_, err := t.driver.Procs(ctx, p)
			return err
		}},
		{"Limits", false, true, func(ctx context.Context, p cgroups.Path) error {
			_, err := t.driver.Limits(ctx, p)
			return err
		}},
		{"Stats", false, true, func(ctx context.Context, p cgroups.Path) error {
			_, err := t.driver.Stats(ctx, p)
			return err
		}},
	}
	if k, ok := t.driver.(cgroups.Killer); ok {
		all = append(all, operation{"Kill", true, false, k.Kill})
	}
	if f, ok := t.driver.(cgroups.Freezer); ok {
		all = append(all, operation{"Freeze", true, false, f.Freeze}, operation{"Thaw", true, false, f.Thaw})
	}
	if s, ok := t.driver.(cgroups.Sampler); ok {
		all = append(all, operation{"Sample", false, true, func(ctx context.Context, p cgroups.Path) error {
			_, err := s.Sample(ctx, p, "", cgroups.PartAll)
			return err
		}}, operation{"ChildDirs", false, false, func(ctx context.Context, p cgroups.Path) error {
			_, err := s.ChildDirs(ctx, p)
			return err
		}})
	}
	if r, ok := t.driver.(cgroups.Reclaimer); ok {
		all = append(all, operation{"Reclaim", true, false, func(ctx context.Context, p cgroups.Path) error {
			_, err := r.Reclaim(ctx, p, 4096)
			return err
		}})
	}
	return all
}

func checkInvalidPaths(t *trial) {
	t.mustApply("a/b", cgroups.Resources{})
	for _, p := range []cgroups.Path{"..", ".", "../x", "a/..", "a/../..", "a/./b", "/a", "a/", "/", "//", "a//b", "a\x00b", "a/b\x00", "a\nb"} {
		for _, c := range t.operations() {
			t.requireRefused(c.call(t.ctx, p), p, ruleValidate, fmt.Sprintf("%s of %q", c.name, string(p)))
		}
	}
	t.requireExists("a/b", true, ruleValidate)
	t.Hold(slices.Equal(t.readChildren(""), []string{"a"}), ruleValidate, "the root has the children %v, want a alone", t.readChildren(""))
}

func checkContextEnded(t *trial) {
	t.mustApply("a", cgroups.Resources{})
	ctx, cancel := context.WithCancel(t.ctx)
	cancel()
	for _, c := range t.operations() {
		err := c.call(ctx, "a")
		t.requireRefused(err, "a", ruleContext, c.name+" with a context that has ended")
		t.Hold(errors.Is(err, context.Canceled), ruleContext, "%s with a context that has ended: %v", c.name, err)
	}
	t.requireRefused(t.driver.Apply(ctx, "b", cgroups.Resources{}), "b", ruleContext, "Apply with a context that has ended")
	t.requireExists("a", true, ruleContext)
	t.requireExists("b", false, ruleContext)
}

func checkConcurrentApply(t *trial) {
	t.needControllers("cpu", "pids")
	t.runConcurrently(8, ruleConcurrent, func(ctx context.Context, i int) error {
		for range 10 {
			r := cgroups.Resources{CPUShares: 100, PidsMax: new(int64(100 + i)), CPUQuota: 50_000}
			if err := t.driver.Apply(ctx, "a/b/c", r); err != nil {
				return err
			}
			if _, err := t.driver.Limits(ctx, "a/b/c"); err != nil {
				return err
			}
		}
		return nil
	})
	got := t.readLimits("a/b/c")
	t.Hold(got.PidsMax != nil && *got.PidsMax >= 100 && *got.PidsMax < 108, ruleConcurrent, "PidsMax is %v, want what one of them wrote", got.PidsMax)
	t.Hold(got.CPUQuota == 50_000, ruleConcurrent, "CPUQuota is %d, want what all of them wrote", got.CPUQuota)
}

func checkConcurrentSiblings(t *trial) {
	const writers, each = 8, 8
	t.runConcurrently(writers, ruleConcurrent, func(ctx context.Context, i int) error {
		for j := range each {
			p := cgroups.Path("a/b").Join(fmt.Sprintf("pod%d-%d", i, j))
			if err := t.driver.Apply(ctx, p, cgroups.Resources{CPUShares: 100}); err != nil {
				return err
			}
		}
		return nil
	})
	t.Hold(len(t.readChildren("a/b")) == writers*each, ruleConcurrent, "%d cgroups were made, want %d", len(t.readChildren("a/b")), writers*each)
}

func checkApplyRemoveRace(t *trial) {
	t.runConcurrently(6, ruleConcurrent, func(ctx context.Context, i int) error {
		for range 15 {
			if i%2 == 0 {
				if err := t.driver.Remove(ctx, "a/b"); err != nil {
					return err
				}
				continue
			}
			// Apply may fail in a race, but it must neither hang nor leave a cgroup that cannot be removed.
			err := t.driver.Apply(ctx, cgroups.Path("a/b").Join(fmt.Sprint("c", i)), cgroups.Resources{CPUShares: 100})
			if _, ok := errors.AsType[*cgroups.Error](err); err != nil && (!ok || ctx.Err() != nil) {
				return err
			}
		}
		return nil
	})
	t.mustApply("a/b/c", cgroups.Resources{})
	t.mustRemove("a")
	t.requireExists("a", false, ruleRemove)
}

func checkConcurrentRemove(t *trial) {
	for i := range 20 {
		p := cgroups.Path("a/b").Join(fmt.Sprint("c", i), "d")
		t.mustApply(p, cgroups.Resources{})
	}
	t.runConcurrently(8, ruleRemoveGone, func(ctx context.Context, i int) error {
		for j := range 20 {
			if err := t.driver.Remove(ctx, cgroups.Path("a/b").Join(fmt.Sprint("c", (i+j)%20))); err != nil {
				return err
			}
		}
		return t.driver.Remove(ctx, "a")
	})
	t.requireExists("a", false, ruleRemove)
}
