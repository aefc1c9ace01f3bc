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

// OveruseError means that a memory limit was not written because the usage exceeds it. On cgroup v2 the write would succeed and
// invoke the OOM killer.
type OveruseError struct {
	Path  cgroups.Path
	Limit int64 // bytes
	Usage int64 // bytes
}

// Error returns a text with the cgroup, the limit and the usage.
func (e *OveruseError) Error() string {
	return fmt.Sprintf("limit memory of cgroup %s to %d bytes: %d are in use", e.Path.Cgroupfs(), e.Limit, e.Usage)
}

// writeUpdate writes an update and records the result for [Tree.Status].
func (t *Tree) writeUpdate(ctx context.Context, u Update) error {
	err := t.applyUpdate(ctx, u)
	if err != nil && !isOveruse(err) && u.LimitToUsage && u.Resources.MemoryMax != nil {
		err = t.applyUpdate(ctx, u) // the usage may have grown since it was read
	}
	t.recordResult(u, err)
	return err
}

// isOveruse reports whether everything except a memory limit below the usage was written.
func isOveruse(err error) bool {
	_, ok := errors.AsType[*OveruseError](err)
	return ok
}

// applyUpdate writes an update, except a memory limit below the usage, for which it returns an OveruseError.
func (t *Tree) applyUpdate(ctx context.Context, u Update) error {
	op := OpUpdate
	var skipped error
	switch err := t.checkExists(ctx, u.Path); {
	case errors.Is(err, fs.ErrNotExist):
		op = OpCreate
	case err != nil:
		return err
	default:
		skipped = t.dropUnsafeLimits(ctx, &u)
	}
	if err := t.applyResources(ctx, op, u.Path, u.Resources); err != nil {
		return err
	}
	return skipped
}

// dropUnsafeLimits removes limits from u that would harm running pods. With KeepHigher these are values below the current ones. A
// memory limit below the usage is removed too, or replaced by the usage with LimitToUsage. Inactive page cache does not count as
// usage.
func (t *Tree) dropUnsafeLimits(ctx context.Context, u *Update) error {
	if t.reader == nil || u.Resources.MemoryMax == nil && !u.KeepHigher {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, t.opts.Timeout)
	defer cancel()
	current, err := t.reader.Limits(ctx, u.Path)
	if err != nil {
		u.Resources.MemoryMax = nil
		return err
	}
	if u.KeepHigher {
		dropDecreases(&u.Resources, current)
	}
	if limit := u.Resources.MemoryMax; limit == nil || current.MemoryMax == nil || comparableLimit(*current.MemoryMax) <= comparableLimit(*limit) {
		return nil
	}
	s, err := t.reader.Stats(ctx, u.Path)
	if err != nil {
		u.Resources.MemoryMax = nil
		return err
	}
	return adjustMemoryLimit(u, s.Memory)
}

// dropDecreases removes from r the values that are not above the current ones.
func dropDecreases(r *cgroups.Resources, current cgroups.Resources) {
	if r.CPUShares <= current.CPUShares {
		r.CPUShares = 0
	}
	for _, n := range []struct {
		want **int64
		now  *int64
	}{{&r.MemoryMin, current.MemoryMin}, {&r.MemoryLow, current.MemoryLow}} {
		if *n.want != nil && n.now != nil && comparableLimit(**n.want) <= comparableLimit(*n.now) {
			*n.want = nil
		}
	}
}

// adjustMemoryLimit removes the memory limit from u, or replaces it, if the usage exceeds it, and returns an OveruseError then.
func adjustMemoryLimit(u *Update, m cgroups.MemoryStats) error {
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

// comparableLimit returns a limit for comparisons: no limit is the largest int64.
func comparableLimit(limit int64) int64 {
	if limit < 0 {
		return math.MaxInt64
	}
	return limit
}

// checkExists returns nil if the cgroup exists.
func (t *Tree) checkExists(ctx context.Context, p cgroups.Path) error {
	ctx, cancel := context.WithTimeout(ctx, t.opts.Timeout)
	defer cancel()
	_, err := t.w.Children(ctx, p)
	return err
}

// recordResult records the result of a write, logs it and calls the hook, unless the limits stay in force.
func (t *Tree) recordResult(u Update, err error) {
	t.mu.Lock()
	i := slices.IndexFunc(t.results, func(o WriteResult) bool { return o.Path == u.Path })
	news := i < 0 || err != nil || t.results[i].Err != nil
	if i < 0 {
		i = len(t.results)
		t.results = append(t.results, WriteResult{Path: u.Path, Since: time.Now()})
	}
	if o := &t.results[i]; (o.Err == nil) != (err == nil) {
		o.Since = time.Now()
	}
	t.results[i].Err = err
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
