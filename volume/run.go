// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/backoff"
	"github.com/seed81659283/nodeagent/internal/mount"
	"github.com/seed81659283/nodeagent/internal/sleep"
	"github.com/seed81659283/nodeagent/volume/plan"
	"github.com/seed81659283/nodeagent/volume/subpath"
)

// Run sets volumes up and tears them down until ctx ends. It is called once, and returns when all that it has started has
// returned. Volumes stay as they are: an agent that ends leaves its pods running.
func (v *Volumes) Run(ctx context.Context) error {
	if err := v.guard.Begin(); err != nil {
		return err
	}
	defer v.guard.End()
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
		p := v.pods[a.Volume.Pod]
		e := p.find(a.Volume.Name)
		e.Begin(a.Step, now)
		s := &step{v: v, pod: p, entry: e, kind: a.Step, began: now, volume: v.volume(p, e)}
		stepCtx, cancel := context.WithTimeout(ctx, v.opts.Timeout)
		e.cancel = cancel
		wg.Go(func() {
			defer cancel()
			s.run(stepCtx)
		})
	}
	return wake
}

// volume returns a volume as plugins see it.
func (v *Volumes) volume(p *podState, e *entry) Volume {
	vol := Volume{
		Pod: p.spec, UID: p.uid, Name: e.Name, Plugin: e.kind, PodDir: p.dir, Dir: filepath.Join(p.dir, e.dir),
		Warn: func(string, string) {},
	}
	if pod := p.spec; pod != nil {
		vol.Source = source(pod, e.Name)
		vol.Warn = func(reason, message string) { v.event(pod, reason, message) }
	}
	return vol
}

// event records a warning about a pod.
func (v *Volumes) event(pod *corev1.Pod, reason, message string) {
	if hook := v.opts.Hooks.Event; hook != nil && pod != nil {
		hook(pod, corev1.EventTypeWarning, reason, message)
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
	v.mu.Lock()
	defer v.mu.Unlock()
	o := Object{Kind: kind, Namespace: namespace, Name: name}
	found := false
	for _, p := range v.pods {
		if p.spec == nil || namespace != "" && p.spec.Namespace != namespace {
			continue
		}
		for _, e := range p.volumes {
			if v.shows(p, e, o) {
				e.Stale, found = true, true
				e.Retry()
			}
		}
	}
	if found {
		v.poke()
	}
}

// shows reports whether a volume shows an object.
func (v *Volumes) shows(p *podState, e *entry, o Object) bool {
	r, ok := v.opts.Plugins[e.kind].(Refresher)
	if !ok || p.spec == nil {
		return false
	}
	vol := source(p.spec, e.Name)
	return vol != nil && r.Shows(p.spec, vol, o)
}

// prepareParents makes the directories that lead to a volume.
func prepareParents(vol Volume) error { return os.MkdirAll(filepath.Dir(vol.Dir), 0o750) }

// cleanSubPaths unmounts the paths within a volume.
func cleanSubPaths(ctx context.Context, vol Volume) error {
	return subpath.Clean(ctx, filepath.Join(vol.PodDir, subPathDir, vol.Name))
}
