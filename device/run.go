// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package device

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed81659283/nodeagent/internal/backoff"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

// readTimeout limits one call of Options.Running.
const readTimeout = 10 * time.Second

// Run restores the devices of running containers from Options.Running if the record was lost. Then it removes the devices of each resource whose
// plugin stays disconnected for more than [StopGrace]. It also calls Options.Export at the start, after changes of lists of devices, and after errors.
// It returns nil when ctx ends. Call Run only once.
func (a *Allocator) Run(ctx context.Context) error {
	if err := a.running.Begin(); err != nil {
		return fmt.Errorf("device.Allocator: %w", err)
	}
	defer a.running.End()
	if !a.readRunning(ctx) {
		return nil
	}
	a.mu.Lock()
	a.requestExport(time.Now())
	a.mu.Unlock()
	for {
		now := time.Now()
		export := a.exportDue(now)
		a.mu.Lock()
		changed, next := a.state.forgetDevices(now)
		uids := a.endWaits(now)
		if end := a.started.Add(StopGrace); now.Before(end) {
			next = sleep.Earlier(next, end) // pods also wait for resources that no plugin has registered
		}
		a.mu.Unlock()
		a.reportForgotten(changed, uids)
		next = sleep.Earlier(next, export)
		if next.IsZero() {
			next = now.Add(time.Hour)
		}
		timer := time.NewTimer(time.Until(next))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-a.wake:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// endWaits removes and returns the UIDs of the pods whose wait for a plugin has ended. The caller holds a.mu.
func (a *Allocator) endWaits(now time.Time) (uids []string) {
	for name, pods := range a.waiting {
		if wait, _ := a.findPlugin(name, now, false); wait.IsZero() {
			uids = slices.AppendSeq(uids, maps.Keys(pods))
			delete(a.waiting, name)
		}
	}
	slices.Sort(uids)
	return uids
}

// reportForgotten saves the record and calls Hooks.CapacityChanged if changed is true: a resource has lost its devices. It calls Hooks.PodsChanged
// with uids, the pods whose wait for a plugin has ended.
func (a *Allocator) reportForgotten(changed bool, uids []string) {
	if changed {
		if err := a.saveRecord(); err != nil {
			a.reportError(err)
		}
		if hook := a.opts.Hooks.CapacityChanged; hook != nil {
			hook()
		}
	}
	if hook := a.opts.Hooks.PodsChanged; hook != nil && len(uids) > 0 {
		hook(uids)
	}
}

// readRunning restores the claims of all containers in the runtime if the record was lost. It retries after an error, and returns false if ctx ends.
func (a *Allocator) readRunning(ctx context.Context) bool {
	a.mu.Lock()
	unread := a.unread
	a.mu.Unlock()
	policy := backoff.Policy{First: time.Second, Max: 30 * time.Second}
	for wait := time.Duration(0); unread; {
		limited, cancel := context.WithTimeout(ctx, readTimeout)
		containers, err := a.opts.Running(limited)
		cancel()
		if err == nil {
			a.adoptRunning(containers)
			break
		}
		if ctx.Err() != nil {
			return false
		}
		a.reportError(fmt.Errorf("device: list the containers of the runtime, which say who holds devices: %w", err))
		wait = policy.Next(wait)
		if sleep.For(ctx, wait) != nil {
			return false
		}
	}
	return ctx.Err() == nil
}

// adoptRunning adds the pods of these containers, with the devices in their annotations. It also adds pods without devices: they run already, so
// Reserve must not refuse them.
func (a *Allocator) adoptRunning(containers []RunningContainer) {
	now := time.Now()
	var errs []error
	a.mu.Lock()
	restored := map[string]*holding{}
	for _, c := range containers {
		h := restored[c.PodUID]
		if h == nil {
			if a.state.pods[c.PodUID] != nil || c.PodUID == "" {
				continue // known from what another agent has left
			}
			h = &holding{pod: Pod{UID: c.PodUID, Namespace: c.Namespace, Name: c.Name}, complete: true}
			restored[c.PodUID] = h
		}
		if err := h.addNote(c); err != nil {
			errs = append(errs, fmt.Errorf("device: container %s of pod %s/%s: %w", c.Container, c.Namespace, c.Name, err))
		}
	}
	for _, h := range restored {
		if err := a.adoptPod(h, now); err != nil {
			errs = append(errs, fmt.Errorf("device: pod %s/%s: %w", h.pod.Namespace, h.pod.Name, err))
		}
	}
	early := slices.Sorted(maps.Keys(a.early))
	a.unread, a.early, a.allocations = false, nil, nil
	a.mu.Unlock()
	if err := errors.Join(append(errs, a.saveRecord())...); err != nil {
		a.reportError(err)
	}
	if hook := a.opts.Hooks.PodsChanged; hook != nil && len(early) > 0 {
		hook(early)
	}
}

// addNote adds the claims in the annotation of container c to its pod h.
func (h *holding) addNote(c RunningContainer) error {
	if c.Note == "" {
		return nil
	}
	ids, err := parseNote(c.Note)
	if err != nil {
		return err
	}
	for resource, list := range ids {
		claim := Claim{PodUID: c.PodUID, Container: c.Container, Resource: resource}
		for _, id := range list {
			claim.Devices = append(claim.Devices, Device{ID: id})
		}
		h.addClaim(claim, Regular)
	}
	return nil
}
