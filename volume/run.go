// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/internal/dirlock"
	"github.com/seed81659283/nodeagent/internal/mount"
	"github.com/seed81659283/nodeagent/internal/volume/plan"
)

// Run sets up, updates and tears down volumes until ctx ends, and then waits for its plugin calls, except for calls that ignore
// ctx. Volumes remain set up, because pods outlive the agent. A second call returns an error, as does a call while another
// Volumes is running on the same Options.Root.
func (v *Volumes) Run(ctx context.Context) (err error) {
	if err := v.guard.Begin(); err != nil {
		return fmt.Errorf("volume.Volumes: %w", err)
	}
	defer v.guard.End()
	release, err := v.lockRoot()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	if err := v.shareRoot(); err != nil {
		return err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	v.mu.Lock()
	damaged := maps.Clone(v.damaged)
	v.mu.Unlock()
	for _, err := range damaged {
		v.events.reportError(err)
	}
	if v.opts.Watcher != nil {
		wg.Go(func() { v.watchObjects(ctx) })
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-v.wake:
		case <-timer.C:
		}
		if wake := v.startSteps(ctx, &wg); !wake.IsZero() {
			timer.Reset(max(time.Until(wake), 0))
		}
	}
}

// lockFile is the name of the lock file in Options.Root. A lifecycle.Reconciler that uses the same directory locks another file.
const lockFile = ".volumes.lock"

// lockRoot creates Options.Root and locks it, so that no other Volumes can run on it until release is called.
func (v *Volumes) lockRoot() (release func() error, err error) {
	if err = os.MkdirAll(v.opts.Root, 0o750); err == nil {
		var lock *dirlock.Lock
		if lock, err = dirlock.Acquire(v.opts.Root, lockFile); err == nil {
			return lock.Release, nil
		}
	}
	return nil, fmt.Errorf("volume.Volumes: lock Options.Root %s: %w", v.opts.Root, err)
}

// shareRoot makes Options.Root a shared mount if Options.MakeRootShared is set. Otherwise it does nothing.
func (v *Volumes) shareRoot() error {
	if !v.opts.MakeRootShared {
		return nil
	}
	err := os.MkdirAll(v.opts.Root, 0o750)
	if err == nil {
		err = mount.MakeShared(v.opts.Root)
	}
	if err != nil {
		return fmt.Errorf("volume: %w", err)
	}
	return nil
}

// startSteps starts a goroutine in wg for each due step, such as the set-up of a volume. It returns when the next one is due, or
// zero.
func (v *Volumes) startSteps(ctx context.Context, wg *sync.WaitGroup) (wake time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := time.Now()
	wake = v.startAdoptions(ctx, wg, now)
	actions, next := plan.Plan(&v.plan, now)
	if wake.IsZero() || !next.IsZero() && next.Before(wake) {
		wake = next
	}
	for _, a := range actions {
		s := v.newStep(a)
		a.Start(now)
		stepCtx, cancel := context.WithCancelCause(ctx)
		*s.cancel = func() { cancel(context.Canceled) }
		wg.Go(func() {
			defer cancel(nil)
			s.runStep(stepCtx)
		})
	}
	return wake
}
