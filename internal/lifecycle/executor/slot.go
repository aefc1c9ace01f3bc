// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"sync"
	"time"
)

// startSlot is the start slot of one pod. [Node].Slots limits how many pods start at the same time.
type startSlot struct {
	node     *Node
	reporter *Reporter

	release         func() // idempotent
	releasedForPull bool   // the slot was released during a pull
}

// acquireSlot waits for a start slot. s.release or the end of Node.StartSlotTimeout releases it.
func (s *startSlot) acquireSlot(ctx context.Context) error {
	if err := s.node.Slots.Acquire(ctx); err != nil {
		return err
	}
	free := sync.OnceFunc(s.node.Slots.Release)
	// Hung calls must not occupy all slots.
	timer := time.AfterFunc(s.node.StartSlotTimeout, func() {
		s.reporter.Log("slow start", "after", s.node.StartSlotTimeout)
		free()
	})
	s.release, s.releasedForPull = func() { timer.Stop(); free() }, false
	return nil
}

// pullAfter is how long Images.Ensure may take before it counts as a pull.
const pullAfter = 100 * time.Millisecond

// pullWithoutSlot calls pull. If this takes long, it releases the start slot meanwhile, and then waits for a new one.
func (s *startSlot) pullWithoutSlot(ctx context.Context, pull func() error) error {
	timer := time.AfterFunc(pullAfter, s.release)
	err := pull()
	s.releasedForPull = !timer.Stop() || s.releasedForPull
	if err != nil || !s.releasedForPull {
		return err
	}
	s.release() // release it in any case before acquiring another
	return s.acquireSlot(ctx)
}
