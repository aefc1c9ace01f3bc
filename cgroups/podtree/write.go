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

// Error returns a text with the cgroup, the limit and the memory usage.
func (e *OveruseError) Error() string {
	return fmt.Sprintf("limit memory of cgroup %s to %d bytes: %d are in use", e.Path.Cgroupfs(), e.Limit, e.Usage)
}

// writeUpdate writes the limits in update.Resources to the cgroup update.Path. It stores success or the error for
// [Tree.Status].
func (t *Tree) writeUpdate(ctx context.Context, update Update) error {
	err := t.applyUpdate(ctx, update)
	if err != nil && !isOveruse(err) && update.LimitToUsage && update.Resources.MemoryMax != nil {
		err = t.applyUpdate(ctx, update) // the usage may have grown since it was read
	}
	t.recordResult(update, err)
	return err
}

// isOveruse reports whether err is an [OveruseError]. With this error, all limits were written except the memory limit that
// is below the usage.
func isOveruse(err error) bool {
	_, ok := errors.AsType[*OveruseError](err)
	return ok
}

// applyUpdate writes the limits in update.Resources to the cgroup update.Path. If the memory usage exceeds the new memory
// limit, it returns an [OveruseError] after it has written the remaining limits.
func (t *Tree) applyUpdate(ctx context.Context, update Update) error {
	op := OpUpdate
	var skipped error
	switch err := t.checkExists(ctx, update.Path); {
	case errors.Is(err, fs.ErrNotExist):
		op = OpCreate
	case err != nil:
		return err
	default:
		skipped = t.dropUnsafeLimits(ctx, &update)
	}
	if err := t.applyResources(ctx, op, update.Path, update.Resources); err != nil {
		return err
	}
	return skipped
}

// dropUnsafeLimits unsets the limits in update that would harm running pods. If the memory usage exceeds the new memory limit,
// it returns an [OveruseError]. If the usage cannot be read, it returns the error and unsets the memory limit.
func (t *Tree) dropUnsafeLimits(ctx context.Context, update *Update) error {
	if t.reader == nil || update.Resources.MemoryMax == nil && !update.KeepHigher {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, t.opts.Timeout)
	defer cancel()
	current, err := t.reader.Limits(ctx, update.Path)
	if err != nil {
		update.Resources.MemoryMax = nil
		return err
	}
	if update.KeepHigher {
		dropDecreases(&update.Resources, current) // of CPU shares and memory protection
	}
	if limit := update.Resources.MemoryMax; limit == nil || current.MemoryMax == nil || comparableLimit(*current.MemoryMax) <= comparableLimit(*limit) {
		return nil
	}
	s, err := t.reader.Stats(ctx, update.Path)
	if err != nil {
		update.Resources.MemoryMax = nil
		return err
	}
	return adjustMemoryLimit(update, s.Memory)
}

// dropDecreases unsets each of CPUShares, MemoryMin and MemoryLow in resources that is not higher than the current value.
func dropDecreases(resources *cgroups.Resources, current cgroups.Resources) {
	if resources.CPUShares <= current.CPUShares {
		resources.CPUShares = 0
	}
	for _, n := range []struct {
		want **int64
		now  *int64
	}{{&resources.MemoryMin, current.MemoryMin}, {&resources.MemoryLow, current.MemoryLow}} {
		if *n.want != nil && n.now != nil && comparableLimit(**n.want) <= comparableLimit(*n.now) {
			*n.want = nil
		}
	}
}

// adjustMemoryLimit returns an [OveruseError] if the memory usage in stats exceeds the new limit, update.Resources.MemoryMax.
// In this case, if update.LimitToUsage is true, it changes the limit to the current usage. Otherwise it sets the limit to nil,
// so that no limit is written.
func adjustMemoryLimit(update *Update, stats cgroups.MemoryStats) error {
	limit, used := *update.Resources.MemoryMax, int64(min(stats.WorkingSet(), math.MaxInt64))
	if used <= limit {
		return nil
	}
	update.Resources.MemoryMax = nil
	if update.LimitToUsage {
		update.Resources.MemoryMax = new(int64(min(stats.Current, math.MaxInt64)))
	}
	return &OveruseError{Path: update.Path, Limit: limit, Usage: used}
}

// comparableLimit returns a limit for comparisons. A negative limit means unlimited, and becomes the largest int64.
func comparableLimit(limit int64) int64 {
	if limit < 0 {
		return math.MaxInt64
	}
	return limit
}

// checkExists returns nil if the cgroup p exists. If it does not, the error wraps [fs.ErrNotExist].
func (t *Tree) checkExists(ctx context.Context, p cgroups.Path) error {
	ctx, cancel := context.WithTimeout(ctx, t.opts.Timeout)
	defer cancel()
	_, err := t.w.Children(ctx, p)
	return err
}

// recordResult records the result of a write for [Tree.Status], and reports failures and recoveries.
func (t *Tree) recordResult(update Update, err error) {
	t.mu.Lock()
	i := slices.IndexFunc(t.results, func(o WriteResult) bool { return o.Path == update.Path })
	news := i < 0 || err != nil || t.results[i].Err != nil
	if i < 0 {
		i = len(t.results)
		t.results = append(t.results, WriteResult{Path: update.Path, Since: time.Now()})
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
		t.opts.Logger.Warn("cgroup limits are not in force", "cgroup", update.Path.Cgroupfs(), "error", err)
	} else {
		t.opts.Logger.Info("cgroup limits are in force", "cgroup", update.Path.Cgroupfs())
	}
	if hook := t.opts.Hooks.LimitsEnforced; hook != nil && !update.LimitToUsage {
		hook(update.Path, err)
	}
}
