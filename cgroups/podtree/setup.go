// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podtree

import (
	"context"
	"fmt"
)

// Setup makes kubepods and the cgroups of the classes and limits them, and then the reserved cgroups, which must exist.
// What exists is kept and brought to what is wanted. It may be called again.
//
// Only what pods cannot do without is an error, and what the operator asked to enforce on reserved cgroups. Where
// kubepods exists and cannot be limited now, mostly because pods use more than it shall have, that is told to
// Hooks.LimitsEnforced and tried again by [Tree.Run].
func (t *Tree) Setup(ctx context.Context) error {
	if err := t.exists(ctx, t.opts.Root); err != nil {
		return fmt.Errorf("root of the pod cgroups: %w", err)
	}
	reserved, err := PlanReserved(t.opts)
	if err != nil {
		return err
	}
	pods, complete := t.pods.Active()
	for i, u := range Plan(t.opts, pods, complete) {
		err := t.write(ctx, u)
		if err == nil || overuse(err) || i == 0 && t.exists(ctx, u.Path) == nil {
			continue
		}
		return err
	}
	for _, u := range reserved {
		err := t.exists(ctx, u.Path)
		if err == nil {
			err = t.write(ctx, u)
		} else {
			t.record(u, err)
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
