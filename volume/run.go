// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/backoff"
	"github.com/seed81659283/nodeagent/internal/dirlock"
	"github.com/seed81659283/nodeagent/internal/mount"
	"github.com/seed81659283/nodeagent/internal/podvolume"
	"github.com/seed81659283/nodeagent/internal/sleep"
	"github.com/seed81659283/nodeagent/internal/volume/plan"
	"github.com/seed81659283/nodeagent/volume/subpath"
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
		v.report(err)
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
		if wake := v.begin(ctx, &wg); !wake.IsZero() {
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

// report tells of what is wrong with no volume in particular.
func (v *Volumes) report(err error) {
	v.opts.Logger.Error("volumes", "error", err)
	if hook := v.opts.Hooks.Error; hook != nil {
		hook(err)
	}
}

// begin begins the steps that are due, and returns when something is that is not yet.
func (v *Volumes) begin(ctx context.Context, wg *sync.WaitGroup) (wake time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := time.Now()
	actions, wake := plan.Plan(&v.state, now)
	for _, a := range actions {
		s := v.step(a)
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

// volume returns a volume as plugins see it.
func (v *Volumes) volume(p *podState, e *entry) Volume {
	vol := Volume{
		Pod: p.spec, UID: p.uid, Name: e.Name, Spec: e.recorded.spec(), Plugin: e.recorded.Plugin,
		PodDir: p.dir, Dir: filepath.Join(p.dir, e.recorded.Dir), PluginDir: v.opts.PluginDir,
		Block: e.recorded.Block, SELinuxLabel: e.recorded.SELinuxLabel, Update: e.Phase == plan.Ready, Recovered: e.Recovered,
		Warn: func(string, string) {},
	}
	if d := e.device; d != nil {
		vol.Device, vol.StagingDir, vol.DevicePath = d.spec, v.stagingDir(&d.spec), d.path
		vol.Shared, vol.Recovered = v.sharedWith(p, d), e.Recovered || d.Recovered
	}
	if pod := p.spec; pod != nil {
		vol.Source = e.source(pod)
		vol.ReadOnly = e.readOnly(pod)
		vol.Warn = func(reason, message string) { v.event(pod, corev1.EventTypeWarning, reason, message) }
		vol.fill(e.claimed)
	}
	return vol
}

// readOnly reports whether a pod has a volume read-only, under all of its names.
func (e *entry) readOnly(pod *corev1.Pod) bool {
	found := false
	for _, name := range e.names() {
		if vol := podvolume.Find(pod, name); vol != nil {
			if !podvolume.ReadOnly(vol) {
				return false
			}
			found = true
		}
	}
	return found
}

// event records an event about a pod.
func (v *Volumes) event(pod *corev1.Pod, eventType, reason, message string) {
	if hook := v.opts.Hooks.Event; hook != nil && pod != nil {
		hook(pod, eventType, reason, message)
	}
}

// watch follows changed objects until ctx ends.
func (v *Volumes) watch(ctx context.Context) {
	policy := backoff.Policy{First: time.Second, Max: time.Minute}
	var wait time.Duration
	for ctx.Err() == nil {
		began := time.Now()
		err := v.opts.Watcher.Watch(ctx, v.changed)
		if ctx.Err() != nil {
			return
		}
		v.changed("", "", "") // nobody knows what was missed
		if time.Since(began) > policy.Max {
			wait = 0
		}
		wait = policy.Next(wait)
		v.opts.Logger.Warn("objects are not watched", "error", err, "again", wait)
		if sleep.For(ctx, wait) != nil {
			return
		}
	}
}

// changed has volumes brought up to date that show an object, and tries those again that wait for it.
func (v *Volumes) changed(kind, namespace, name string) {
	o := Object{Kind: kind, Namespace: namespace, Name: name}
	if uids := v.stale(o); len(uids) > 0 {
		v.ready.Call(uids...)
	}
}

// stale notes that an object has changed. It returns the pods that wait for it to be one which they can use.
func (v *Volumes) stale(o Object) (waiting []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	found := v.retry(o)
	for _, p := range v.pods {
		if p.spec == nil || o.Namespace != "" && p.spec.Namespace != o.Namespace {
			continue
		}
		for _, e := range p.volumes {
			if v.shows(p, e, o) || e.claimed.is(o) {
				e.Stale, found = true, true
				e.Retry()
				if e.device != nil {
					e.device.Retry()
				}
			}
		}
	}
	if found {
		v.poke()
	}
	for uid, pod := range v.claims {
		if waitsFor(pod, o) {
			waiting = append(waiting, uid)
		}
	}
	return waiting
}

// retry has what waits for an object tried again at once, and reports whether something does.
func (v *Volumes) retry(o Object) (found bool) {
	waits := func(kind string, p *plan.Progress) {
		if w, ok := v.opts.Plugins[kind].(Waiter); ok && p.Failures > 0 && w.WaitsFor(o) {
			p.Retry()
			found = true
		}
	}
	for _, p := range v.pods {
		for _, e := range p.volumes {
			waits(e.recorded.Plugin, &e.Progress)
		}
	}
	for _, d := range v.devices {
		waits(d.kind, &d.Progress)
	}
	return found
}

// shows reports whether a volume shows an object.
func (v *Volumes) shows(p *podState, e *entry, o Object) bool {
	r, ok := v.opts.Plugins[e.recorded.Plugin].(Refresher)
	if !ok || p.spec == nil {
		return false
	}
	vol := e.source(p.spec)
	return vol != nil && r.Shows(p.spec, vol, o)
}

// prepareParents makes the directories that lead to a volume.
func prepareParents(vol Volume) error { return os.MkdirAll(filepath.Dir(vol.Dir), 0o750) }

// cleanSubPaths unmounts the paths within a volume.
func cleanSubPaths(ctx context.Context, vol Volume) error {
	return subpath.Clean(ctx, filepath.Join(vol.PodDir, subPathDir, vol.Spec))
}
