// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podtree

import (
	"context"
	"fmt"
)

// Setup creates kubepods and the QoS class cgroups with their limits. It also limits the reserved cgroups, which must exist.
// A later call corrects limits that differ.
//
// It returns an error if pods could not run, or if an enforced reservation cannot be written. If kubepods exists but its
// limits cannot be written now, mostly because of its memory usage, this is no error: Setup calls Hooks.LimitsEnforced with
// the cause, and [Tree.Run] retries.
func (t *Tree) Setup(ctx context.Context) error {
	if err := t.checkExists(ctx, t.opts.Root); err != nil {
		return fmt.Errorf("root of the pod cgroups: %w", err)
	}
	reserved, err := PlanReserved(t.opts)
	if err != nil {
		return err
	}
	pods, complete := t.pods.Active()
	for i, u := range Plan(t.opts, pods, complete) {
		err := t.writeUpdate(ctx, u)
		if err == nil || isOveruse(err) || i == 0 && t.checkExists(ctx, u.Path) == nil {
			continue
		}
		return err
	}
	for _, u := range reserved {
		err := t.checkExists(ctx, u.Path)
		if err == nil {
			err = t.writeUpdate(ctx, u)
		} else {
			t.recordResult(u, err)
		}
		if err != nil {
			return fmt.Errorf("enforce reservation: %w", err)
		}
	}
	t.mu.Lock()
	t.ready = true
	t.mu.Unlock()
	return nil
}
