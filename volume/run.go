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

// Run sets volumes up and tears them down until ctx ends. It is called once, and returns when all that it has started has
// returned. Volumes stay as they are: an agent that ends leaves its pods running. It returns an error at once when another
// Volumes runs on the same Options.Root, and when it is called a second time.
func (v *Volumes) Run(ctx context.Context) (err error) {
	if err := v.guard.Begin(); err != nil {
		return fmt.Errorf("volume.Volumes: %w", err)
	}
	defer v.guard.End()
	release, err := v.lock()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	if err := v.share(); err != nil {
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
		wg.Go(func() { v.watch(ctx) })
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

// lockFile is the name of the lock in Options.Root. A lifecycle.Reconciler, which may have the same directory, has another.
const lockFile = ".volumes.lock"

// lock makes the root that of this Volumes alone until release is called.
func (v *Volumes) lock() (release func() error, err error) {
	if err = os.MkdirAll(v.opts.Root, 0o750); err == nil {
		var lock *dirlock.Lock
		if lock, err = dirlock.Take(v.opts.Root, lockFile); err == nil {
			return lock.Release, nil
		}
	}
	return nil, fmt.Errorf("volume.Volumes: lock Options.Root %s: %w", v.opts.Root, err)
}

// share makes the root a shared mount, if that is asked for.
func (v *Volumes) share() error {
	if !v.opts.Shared {
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

// startSteps starts the steps that are due, and returns when the next step is due.
func (v *Volumes) startSteps(ctx context.Context, wg *sync.WaitGroup) (wake time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := time.Now()
	actions, wake := plan.Plan(&v.plan, now)
	for _, a := range actions {
		s := v.newStep(a)
		a.Begin(now)
		stepCtx, cancel := context.WithCancelCause(ctx)
		*s.cancel = func() { cancel(context.Canceled) }
		wg.Go(func() {
			defer cancel(nil)
			s.run(stepCtx)
		})
	}
	return wake
}
