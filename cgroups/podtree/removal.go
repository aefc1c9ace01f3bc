// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podtree

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/cgroups"
)

// removeOrphans searches for cgroups of pods that no longer exist every Options.OrphanPeriod, and removes them, until ctx
// ends.
func (t *Tree) removeOrphans(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, t.opts.Parallel)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		plan, err := t.planRemovals(ctx)
		if err != nil && ctx.Err() == nil {
			t.opts.Logger.Warn("search for orphaned pod cgroups", "error", err)
		}
		t.mu.Lock()
		t.orphanErr = err
		t.mu.Unlock()
		// one goroutine each, because a removal may hang
		for _, f := range plan.Remove {
			wg.Go(func() { t.removeOrphan(ctx, slots, f, false) })
		}
		for _, f := range plan.Shrink {
			wg.Go(func() { t.removeOrphan(ctx, slots, f, true) })
		}
		wait := t.opts.OrphanPeriod
		if !plan.Wake.IsZero() {
			wait = min(wait, max(time.Until(plan.Wake), 0))
		}
		timer.Reset(wait)
	}
}

// planRemovals plans which cgroups of orphaned pods to remove, and marks them as busy.
func (t *Tree) planRemovals(ctx context.Context) (OrphanPlan, error) {
	found, err := t.findPodCgroups(ctx)
	if err != nil {
		return OrphanPlan{}, err
	}
	// after the list of cgroups, so that the list has no cgroup of a pod that starts meanwhile
	_, complete := t.pods.Active()
	attempts := map[cgroups.Path]RemovalAttempts{}
	t.mu.Lock()
	for p, o := range t.orphans {
		attempts[p] = o.attempt
	}
	t.mu.Unlock()
	plan := PlanOrphans(OrphanState{
		Found: found, Attempts: attempts, Complete: complete,
		MayRun: t.pods.MayRun, HasVolumes: t.opts.HasVolumes, Now: time.Now(),
	})
	named := map[cgroups.Path]bool{}
	for _, f := range slices.Concat(plan.Remove, plan.Shrink, plan.Waiting) {
		named[f.Path] = true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.orphans, func(p cgroups.Path, o *orphan) bool {
		return !o.attempt.Busy && !named[p]
	})
	for i, f := range slices.Concat(plan.Remove, plan.Shrink) {
		o := t.orphans[f.Path]
		if o == nil {
			o = &orphan{uid: f.UID}
			t.orphans[f.Path] = o
		}
		o.attempt.Busy, o.hasVolumes = true, i >= len(plan.Remove)
	}
	return plan, nil
}

// findPodCgroups returns the existing cgroups of pods in all QoS classes. Each has the UID of its pod.
func (t *Tree) findPodCgroups(ctx context.Context) ([]PodCgroup, error) {
	ctx, cancel := context.WithTimeout(ctx, t.opts.Timeout)
	defer cancel()
	var found []PodCgroup
	for _, class := range qosClasses() {
		parent := cgroups.QOSPath(t.opts.Root, class)
		names, err := t.w.Children(ctx, parent)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, name := range names {
			p := parent.Join(name)
			if uid, ok := cgroups.PodUID(t.opts.Root, p); ok {
				found = append(found, PodCgroup{UID: uid, Path: p})
			}
		}
	}
	return found, nil
}

// removeOrphan removes the cgroup of an orphaned pod, or minimizes its CPU shares while the pod has volumes.
func (t *Tree) removeOrphan(ctx context.Context, slots chan struct{}, found PodCgroup, shrink bool) {
	select {
	case slots <- struct{}{}: // limits the concurrent removals
		defer func() { <-slots }()
	case <-ctx.Done():
		return
	}
	release, err := t.podLocks.lockPod(ctx, found.UID)
	if err != nil {
		return // ctx has ended
	}
	defer release()
	// The pod may have been added back since the search. Its Ensure waits for the lock.
	if t.pods.MayRun(found.UID) || t.opts.HasVolumes(found.UID) != shrink {
		t.mu.Lock()
		delete(t.orphans, found.Path)
		t.mu.Unlock()
		return
	}
	if shrink {
		err = t.applyResources(ctx, OpUpdate, found.Path, cgroups.Resources{CPUShares: cgroups.MinShares})
	} else {
		err = t.removeCgroup(ctx, found.Path)
	}
	if ctx.Err() == nil {
		t.recordRemoval(found, shrink, err)
	}
}

// recordRemoval records the result of removeOrphan for [Tree.Status] and for the next attempt. shrink is true if the cgroup
// remains, with minimal CPU shares. recordRemoval also calls Hooks.OrphanProcessed.
func (t *Tree) recordRemoval(found PodCgroup, shrink bool, err error) {
	t.mu.Lock()
	o := t.orphans[found.Path]
	o.attempt.Busy = false
	o.err = err
	if err == nil {
		o.attempt.Failures = 0
	} else {
		o.attempt.Failures++
		o.attempt.Retry = time.Now().Add(retryPolicy().After(o.attempt.Failures))
	}
	report := o.toOrphan(found.Path)
	if err == nil && !shrink {
		delete(t.orphans, found.Path)
	}
	t.mu.Unlock()
	if err != nil {
		t.opts.Logger.Warn("cannot remove the cgroup of an orphaned pod", "uid", found.UID, "cgroup", found.Path.Cgroupfs(),
			"volumes", shrink, "error", err, "retry", report.Retry)
	} else if !shrink {
		t.opts.Logger.Info("removed the cgroup of an orphaned pod", "uid", found.UID, "cgroup", found.Path.Cgroupfs())
	}
	if hook := t.opts.Hooks.OrphanProcessed; hook != nil {
		hook(report)
	}
}

// orphan records the attempts to remove the cgroup of one orphaned pod.
type orphan struct {
	uid        string
	attempt    RemovalAttempts
	hasVolumes bool
	err        error // of the last attempt
}

func (o *orphan) toOrphan(p cgroups.Path) Orphan {
	return Orphan{
		UID: o.uid, Path: p, Volumes: o.hasVolumes, Failures: o.attempt.Failures, Err: o.err, Retry: o.attempt.Retry,
	}
}

// listOrphans returns the cgroups of orphaned pods, sorted by path. The caller holds t.mu.
func (t *Tree) listOrphans() []Orphan {
	var list []Orphan
	for p, o := range t.orphans {
		list = append(list, o.toOrphan(p))
	}
	slices.SortFunc(list, func(a, b Orphan) int { return cmp.Compare(a.Path, b.Path) })
	return list
}
