// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podtree

import (
	"context"
	"fmt"
)

// Setup creates kubepods and the QoS class cgroups with their limits, and limits the reserved cgroups, which must exist. A
// later call corrects the limits. It returns an error if pods could not run, or an enforced reservation cannot be written.
//
// If only the limits of an existing kubepods cannot be written, mostly because of its memory usage, Setup calls
// Hooks.LimitsEnforced, and [Tree.Run] retries.
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
