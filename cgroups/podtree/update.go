// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podtree

import (
	"context"
	"reflect"
	"time"

	"github.com/seed81659283/nodeagent/cgroups"
)

// updateLoop writes the limits of kubepods and the QoS class cgroups when the pods change, and every Options.Period.
func (t *Tree) updateLoop(ctx context.Context) {
	tick := time.NewTicker(t.opts.Period)
	defer tick.Stop()
	written := map[cgroups.Path]Update{}
	for {
		t.writeUpdates(ctx, written)
		select {
		case <-ctx.Done():
			return
		case <-t.changed:
		case <-tick.C:
			clear(written) // another program may have changed them
		}
	}
}

// writeUpdates computes the limits and writes those that differ from the last written updates, which it records.
func (t *Tree) writeUpdates(ctx context.Context, written map[cgroups.Path]Update) {
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
		if t.writeUpdate(ctx, u) == nil {
			written[u.Path] = u
		}
	}
	if complete {
		t.reportProtected(updates[0].Resources)
	}
}

// reportProtected calls Hooks.MemoryProtected if memory.min or memory.low of kubepods has changed since the previous call.
func (t *Tree) reportProtected(kubepods cgroups.Resources) {
	if kubepods.MemoryMin == nil {
		return // no memory protection on cgroup v1
	}
	current := [2]int64{*kubepods.MemoryMin - *kubepods.MemoryLow, *kubepods.MemoryLow}
	t.mu.Lock()
	changed := current != t.protected
	t.protected = current
	t.mu.Unlock()
	if hook := t.opts.Hooks.MemoryProtected; hook != nil && changed {
		hook(current[0], current[1])
	}
}
