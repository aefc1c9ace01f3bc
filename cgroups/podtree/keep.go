// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podtree

import (
	"context"
	"reflect"
	"time"

	"github.com/seed81659283/nodeagent/cgroups"
)

// keep brings kubepods and the classes to what is planned: what the pods have changed at once, and everything again
// each period, in case another program has written there.
func (t *Tree) keep(ctx context.Context) {
	tick := time.NewTicker(t.opts.Period)
	defer tick.Stop()
	written := map[cgroups.Path]Update{}
	for {
		t.refresh(ctx, written)
		select {
		case <-ctx.Done():
			return
		case <-t.kick:
		case <-tick.C:
			clear(written)
		}
	}
}

// refresh writes what is planned where it differs from what was planned and written before.
func (t *Tree) refresh(ctx context.Context, written map[cgroups.Path]Update) {
	if !t.isReady() {
		return
	}
	pods, complete := t.pods.Active()
	updates := Plan(t.opts, pods, complete)
	for _, u := range updates {
		if old, ok := written[u.Path]; ok && reflect.DeepEqual(old, u) {
			continue
		}
		if ctx.Err() != nil {
			return
		}
		delete(written, u.Path)
		if t.write(ctx, u) == nil {
			written[u.Path] = u
		}
	}
	if complete {
		t.tellProtected(updates[0].Resources)
	}
}

// tellProtected tells the hook how much memory is kept for pods, where that has changed.
func (t *Tree) tellProtected(kubepods cgroups.Resources) {
	if kubepods.MemoryMin == nil {
		return // cgroup v1 protects nothing
	}
	now := [2]int64{*kubepods.MemoryMin - *kubepods.MemoryLow, *kubepods.MemoryLow}
	t.mu.Lock()
	changed := now != t.protected
	t.protected = now
	t.mu.Unlock()
	if hook := t.opts.Hooks.MemoryProtected; hook != nil && changed {
		hook(now[0], now[1])
	}
}
