// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package startslots bounds how many pods are started at the same time: by a number, or by what the machine can do, as it
// grows while starts wait and the CPU is idle. It knows nothing of pods.
package startslots

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/internal/sleep"
)

// Slots are what starts wait for. Whoever waits gets the next slot in the order in which it came. Where there is an idle function, the bound follows the machine between least and most, as pace says.
type Slots struct {
	least, most int
	cpu         func() (cpuTimes, error) // nil: the bound is fixed
	waits       chan struct{}            // a start waits

	mu    sync.Mutex // guards all below
	limit int
	held  int
	queue []chan struct{} // of starts that wait; closed when they have a slot
}

// New returns slots for the machine that the program runs on: as many as are asked for, or for zero as many as it can use.
func New(parallel int) *Slots { return newSlots(parallel, runtime.GOMAXPROCS(0), readCPUTimes) }

// newSlots returns as many slots as are asked for or, for zero, at least as many as keep the processors busy where
// starts mostly compute, and at most four times as many, which do so where they mostly wait.
func newSlots(parallel, processors int, cpu func() (cpuTimes, error)) *Slots {
	s := &Slots{least: parallel, most: parallel, waits: make(chan struct{}, 1)}
	if parallel <= 0 {
		s.least = max(4, 2*processors)
		s.most, s.cpu = 4*s.least, cpu
	}
	s.limit = s.least
	return s
}

// Acquire waits for a slot.
func (s *Slots) Acquire(ctx context.Context) error {
	s.mu.Lock()
	if s.held < s.limit && len(s.queue) == 0 {
		s.held++
		s.mu.Unlock()
		return nil
	}
	mine := make(chan struct{})
	s.queue = append(s.queue, mine)
	s.mu.Unlock()
	sleep.Wake(s.waits)
	select {
	case <-mine:
		return nil
	case <-ctx.Done():
		s.leave(mine)
		return ctx.Err()
	}
}

// leave gives up a place in the queue, or the slot that was given to it meanwhile.
func (s *Slots) leave(mine chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.queue, mine); i >= 0 {
		s.queue = slices.Delete(s.queue, i, i+1)
		return
	}
	s.held--
	s.grant()
}

// Release gives a slot back.
func (s *Slots) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held--
	s.grant()
}

// grant gives free slots to those that wait. The lock is held.
func (s *Slots) grant() {
	for s.held < s.limit && len(s.queue) > 0 {
		close(s.queue[0])
		s.queue = s.queue[1:]
		s.held++
	}
}

// paceEvery is how often the bound is looked at while a start waits: often enough for a burst of some seconds, and long
// enough for the kernel's unit of CPU time, 10 ms, and the pauses of a single start to be a small part of it. Looking more
// often than that made the first pods of a burst wait for those behind them.
const paceEvery = 250 * time.Millisecond

// Run lets the bound follow the machine until ctx ends. It sleeps while no start waits.
func (s *Slots) Run(ctx context.Context) {
	if s.cpu == nil {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.waits:
		}
		last, err := s.cpu()
		for waiting := true; waiting && err == nil; {
			select {
			case <-ctx.Done():
				return
			case <-time.After(paceEvery):
			}
			var now cpuTimes
			if now, err = s.cpu(); err == nil {
				waiting = s.adjust(now.idleSince(last))
				last = now
			}
		}
		if err != nil { // it is not known what the machine can do
			s.mu.Lock()
			s.limit = s.least
			s.mu.Unlock()
		}
	}
}

// adjust makes one step of the bound, and reports whether starts wait all the same.
func (s *Slots) adjust(idle float64) (waiting bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit = pace{Limit: s.limit, Least: s.least, Most: s.most, Waiting: len(s.queue), Idle: idle}.next()
	s.grant()
	return len(s.queue) > 0
}

// pace is what the number of starts at a time is decided from.
type pace struct {
	Limit       int // in force
	Least, Most int
	Waiting     int     // starts without a slot
	Idle        float64 // share of the machine's CPU time since the last look that nobody used; negative: not known
}

// What share of idle CPU time lets the number of starts grow, and below which it shrinks.
const (
	idleToGrow   = 0.25
	idleToShrink = 0.05
)

// next returns how many starts are to be under way: a quarter more while some wait and the CPU is idle, one less where
// it is busy all the time, as more starts then only slow each other down, and the least where none waits. Starts that are
// under way go on.
func (p pace) next() int {
	switch {
	case p.Waiting == 0:
		return p.Least
	case p.Idle >= idleToGrow:
		return min(p.Limit+max(p.Limit/4, 1), p.Most)
	case p.Idle >= 0 && p.Idle < idleToShrink:
		return max(p.Limit-1, p.Least)
	}
	return p.Limit
}
