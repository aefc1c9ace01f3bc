// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"sync"
	"time"
)

// startSlot is the start slot that the start of the pod holds. All pods share [Node.Slots].
type startSlot struct {
	node     *Node
	reporter *Reporter

	release func() // may be repeated
	lent    bool   // the slot was released for a pull
}

// acquire waits for a start slot, which s.release releases. A slot that is held for longer than SlowAfter is released while the start
// continues, so that calls that hang cannot occupy all slots.
func (s *startSlot) acquire(ctx context.Context) error {
	if err := s.node.Slots.Acquire(ctx); err != nil {
		return err
	}
	free := sync.OnceFunc(s.node.Slots.Release)
	timer := time.AfterFunc(s.node.SlowAfter, func() {
		s.reporter.Log("slow start", "after", s.node.SlowAfter)
		free()
	})
	s.release, s.lent = func() { timer.Stop(); free() }, false
	return nil
}

// pullAfter is how long an image may take to be made present before that counts as a pull.
const pullAfter = 100 * time.Millisecond

// lend calls pull, which makes an image present. If that takes longer than pullAfter, the start slot is released, and acquired again after
// pull has returned without an error.
func (s *startSlot) lend(ctx context.Context, pull func() error) error {
	timer := time.AfterFunc(pullAfter, s.release)
	err := pull()
	s.lent = !timer.Stop() || s.lent
	if err != nil || !s.lent {
		return err
	}
	s.release() // in any case before there is another
	return s.acquire(ctx)
}
