// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package device

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed81659283/nodeagent/internal/backoff"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

// exportPause is the least time between two exports that changed device lists cause.
const exportPause = time.Second

// exportBackOff returns the delays before Run repeats a failed export.
func exportBackOff() backoff.Policy { return backoff.Policy{First: time.Second, Max: 5 * time.Minute} }

// exportState is the progress of Options.Export. Allocator.mu guards it.
type exportState struct {
	due   time.Time     // when Run exports; zero: nothing has changed since the last export
	last  time.Time     // start of the last export; zero: none yet
	delay time.Duration // back-off after the last error; zero: the last export succeeded
}

// requestExport lets Run export the claims, at most once per [exportPause]. The caller holds a.mu.
func (a *Allocator) requestExport(now time.Time) {
	if a.opts.Export == nil || !a.exported.due.IsZero() {
		return
	}
	a.exported.due = now
	if next := a.exported.last.Add(exportPause); next.After(now) {
		a.exported.due = next
	}
	sleep.Wake(a.wake)
}

// exportClaims calls Options.Export. After an error, Run repeats the call. Before Options.Running is read, exportClaims does nothing: Run exports then.
// The caller holds a.saving, and reports the error after its unlock: Hooks.Error may call the Allocator.
func (a *Allocator) exportClaims() error {
	if a.opts.Export == nil {
		return nil
	}
	now := time.Now()
	a.mu.Lock()
	if a.unread {
		a.mu.Unlock()
		return nil
	}
	claims, healthy := a.listClaims(), a.state.listHealthy()
	a.exported.due, a.exported.last = time.Time{}, now
	a.mu.Unlock()
	err := a.opts.Export(claims, healthy)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil {
		a.exported.delay = 0
		return nil
	}
	a.exported.delay = exportBackOff().Next(a.exported.delay)
	a.exported.due = time.Now().Add(a.exported.delay)
	sleep.Wake(a.wake)
	return fmt.Errorf("device: export who holds devices: %w", err)
}

// exportDue exports the claims if that is due at now, and returns when the next export is due, or zero.
func (a *Allocator) exportDue(now time.Time) time.Time {
	a.mu.Lock()
	due := a.exported.due
	a.mu.Unlock()
	if due.IsZero() || now.Before(due) {
		return due
	}
	a.saving.Lock()
	err := a.exportClaims()
	a.saving.Unlock()
	if err != nil {
		a.reportError(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.exported.due
}

// listHealthy returns the IDs of the healthy devices of each registered resource. A resource without connected plugin has none.
func (s *state) listHealthy() map[string][]string {
	healthy := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(s.resources)) {
		r := s.resources[name]
		if !r.registered {
			continue
		}
		ids := make([]string, 0, r.allocatable())
		for i := range r.devices {
			if r.devices[i].Healthy && len(r.feeds) > 0 {
				ids = append(ids, r.devices[i].ID)
			}
		}
		healthy[name] = ids
	}
	return healthy
}
