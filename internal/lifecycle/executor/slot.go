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

// acquireSlot waits for a start slot and sets s.release, the function that releases it. After Node.StartSlotTimeout the slot
// is released even if the start continues, so that hung calls cannot occupy all slots.
func (s *startSlot) acquireSlot(ctx context.Context) error {
	if err := s.node.Slots.Acquire(ctx); err != nil {
		return err
	}
	free := sync.OnceFunc(s.node.Slots.Release)
	timer := time.AfterFunc(s.node.StartSlotTimeout, func() {
		s.reporter.Log("slow start", "after", s.node.StartSlotTimeout)
		free()
	})
	s.release, s.releasedForPull = func() { timer.Stop(); free() }, false
	return nil
}

// pullAfter is how long Images.Ensure may take before it counts as a pull.
const pullAfter = 100 * time.Millisecond

// pullWithoutSlot calls pull, which pulls an image if it is missing. If pull takes longer than pullAfter, the start slot is
// released for other pods. In this case pullWithoutSlot waits for a new slot after a successful pull.
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
