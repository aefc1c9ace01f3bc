// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podtree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"time"

	"github.com/seed81659283/nodeagent/cgroups"
)

// OveruseError says that a memory limit was not written because more is in use. On cgroup v2 the write would not fail
// but kill.
type OveruseError struct {
	Path  cgroups.Path
	Limit int64 // bytes
	Usage int64 // bytes
}

// Error names the cgroup, the limit and the usage.
func (e *OveruseError) Error() string {
	return fmt.Sprintf("limit memory of cgroup %s to %d bytes: %d are in use", e.Path.Cgroupfs(), e.Limit, e.Usage)
}

// write brings a cgroup of the node to what is planned for it, and keeps how it went for [Tree.Status].
func (t *Tree) write(ctx context.Context, u Update) error {
	err := t.limit(ctx, u)
	if err != nil && !overuse(err) && u.LimitToUsage && u.Resources.MemoryMax != nil {
		err = t.limit(ctx, u) // what is in use may have grown meanwhile
	}
	t.record(u, err)
	return err
}

// overuse reports whether all was written but a memory limit that does not fit.
func overuse(err error) bool {
	_, ok := errors.AsType[*OveruseError](err)
	return ok
}

// limit writes to a cgroup all but a memory limit that does not fit.
func (t *Tree) limit(ctx context.Context, u Update) error {
	op := OpUpdate
	var misfit error
	switch err := t.exists(ctx, u.Path); {
	case errors.Is(err, fs.ErrNotExist):
		op = OpCreate
	case err != nil:
		return err
	default:
		misfit = t.fit(ctx, &u)
	}
	if err := t.apply(ctx, op, u.Path, u.Resources); err != nil {
		return err
	}
	return misfit
}

// fit takes out of u what would take too much from what runs: a lower number where u is to grow, and a memory limit
// below what is in use, which may become a limit to just that. What the kernel can take back at once, such as page
// cache that was not used lately, is not in use.
func (t *Tree) fit(ctx context.Context, u *Update) error {
	if t.reader == nil || u.Resources.MemoryMax == nil && !u.KeepHigher {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, t.opts.Timeout)
	defer cancel()
	now, err := t.reader.Limits(ctx, u.Path)
	if err != nil {
		u.Resources.MemoryMax = nil
		return err
	}
	if u.KeepHigher {
		grow(&u.Resources, now)
	}
	if limit := u.Resources.MemoryMax; limit == nil || now.MemoryMax == nil || bound(*now.MemoryMax) <= bound(*limit) {
		return nil
	}
	s, err := t.reader.Stats(ctx, u.Path)
	if err != nil {
		u.Resources.MemoryMax = nil
		return err
	}
	return fitMemory(u, s.Memory)
}

// grow takes out of r the numbers that are as high or higher now.
func grow(r *cgroups.Resources, now cgroups.Resources) {
	if r.CPUShares <= now.CPUShares {
		r.CPUShares = 0
	}
	for _, n := range []struct {
		want **int64
		now  *int64
	}{{&r.MemoryMin, now.MemoryMin}, {&r.MemoryLow, now.MemoryLow}} {
		if *n.want != nil && n.now != nil && bound(**n.want) <= bound(*n.now) {
			*n.want = nil
		}
	}
}

// fitMemory makes a memory limit fit what is in use, or returns why it does not.
func fitMemory(u *Update, m cgroups.MemoryStats) error {
	limit, used := *u.Resources.MemoryMax, int64(min(m.WorkingSet(), math.MaxInt64))
	if used <= limit {
		return nil
	}
	u.Resources.MemoryMax = nil
	if u.LimitToUsage {
		u.Resources.MemoryMax = new(int64(min(m.Current, math.MaxInt64)))
	}
	return &OveruseError{Path: u.Path, Limit: limit, Usage: used}
}

// bound returns a limit as a number that can be compared: no limit is the largest.
func bound(limit int64) int64 {
	if limit < 0 {
		return math.MaxInt64
	}
	return limit
}

// exists returns nil where there is a cgroup.
func (t *Tree) exists(ctx context.Context, p cgroups.Path) error {
	ctx, cancel := context.WithTimeout(ctx, t.opts.Timeout)
	defer cancel()
	_, err := t.w.Children(ctx, p)
	return err
}

// record keeps the outcome of a write and tells it to the log and the hook.
func (t *Tree) record(u Update, err error) {
	t.mu.Lock()
	i := slices.IndexFunc(t.outcomes, func(o WriteResult) bool { return o.Path == u.Path })
	news := i < 0 || err != nil || t.outcomes[i].Err != nil
	if i < 0 {
		i = len(t.outcomes)
		t.outcomes = append(t.outcomes, WriteResult{Path: u.Path, Since: time.Now()})
	}
	if o := &t.outcomes[i]; (o.Err == nil) != (err == nil) {
		o.Since = time.Now()
	}
	t.outcomes[i].Err = err
	t.mu.Unlock()
	if !news {
		return
	}
	if err != nil {
		t.opts.Logger.Warn("cgroup limits are not in force", "cgroup", u.Path.Cgroupfs(), "error", err)
	} else {
		t.opts.Logger.Info("cgroup limits are in force", "cgroup", u.Path.Cgroupfs())
	}
	if hook := t.opts.Hooks.LimitsEnforced; hook != nil && !u.LimitToUsage {
		hook(u.Path, err)
	}
}
