// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package startslots limits how many pods start at the same time. The limit is fixed, or adapts to the machine: it grows while
// starts wait and the CPU is idle.
package startslots

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/internal/sleep"
)

// Slots limits how many pods start at the same time. Waiting starts get free slots in order of arrival. If readCPU is not nil,
// Run adapts the limit between minLimit and maxLimit.
type Slots struct {
	minLimit, maxLimit int
	readCPU            func() (cpuTimes, error) // nil: the limit is fixed
	waiting            chan struct{}            // signalled when a start waits

	mu    sync.Mutex // guards all below
	limit int
	used  int
	queue []chan struct{} // one channel per waiting start, closed when it has a slot
}

// New returns Slots for at most the given number of parallel starts. If parallel is zero, the limit adapts to the CPU load
// of the machine; see [Slots.Run].
func New(parallel int) *Slots { return newSlots(parallel, runtime.GOMAXPROCS(0), readCPUTimes) }

// newSlots returns Slots for the given number of parallel starts. If it is zero, the limit adapts to the CPU load.
func newSlots(parallel, processors int, cpu func() (cpuTimes, error)) *Slots {
	s := &Slots{minLimit: parallel, maxLimit: parallel, waiting: make(chan struct{}, 1)}
	if parallel <= 0 {
		s.minLimit = max(4, 2*processors)
		s.maxLimit, s.readCPU = 4*s.minLimit, cpu
	}
	s.limit = s.minLimit
	return s
}

// Acquire waits for a free slot until ctx ends. If it returns nil, the caller must call Release later.
func (s *Slots) Acquire(ctx context.Context) error {
	s.mu.Lock()
	if s.used < s.limit && len(s.queue) == 0 {
		s.used++
		s.mu.Unlock()
		return nil
	}
	granted := make(chan struct{})
	s.queue = append(s.queue, granted)
	s.mu.Unlock()
	sleep.Wake(s.waiting)
	select {
	case <-granted:
		return nil
	case <-ctx.Done():
		s.cancelWait(granted)
		return ctx.Err()
	}
}

// cancelWait ends the wait of a start in Acquire, and releases its slot if it has received one meanwhile.
func (s *Slots) cancelWait(granted chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.queue, granted); i >= 0 {
		s.queue = slices.Delete(s.queue, i, i+1)
		return
	}
	s.used--
	s.grantSlots()
}

// Release frees a slot that Acquire has reserved. The slot goes to the start that has waited longest.
func (s *Slots) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used--
	s.grantSlots()
}

// grantSlots grants free slots to waiting starts. s.mu is held.
func (s *Slots) grantSlots() {
	for s.used < s.limit && len(s.queue) > 0 {
		close(s.queue[0])
		s.queue = s.queue[1:]
		s.used++
	}
}

// adjustPeriod is how often the limit is adjusted while a start waits. It is short compared to a burst of some seconds, and long
// compared to the 10 ms resolution of CPU times. With shorter periods, the first pods of a burst waited for later ones.
const adjustPeriod = 250 * time.Millisecond

// Run adapts the limit to the CPU load until ctx ends. It changes the limit only while starts wait for a slot. If the limit
// is fixed, it returns at once.
func (s *Slots) Run(ctx context.Context) {
	if s.readCPU == nil {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.waiting:
		}
		last, err := s.readCPU()
		for waiting := true; waiting && err == nil; {
			select {
			case <-ctx.Done():
				return
			case <-time.After(adjustPeriod):
			}
			var now cpuTimes
			if now, err = s.readCPU(); err == nil {
				waiting = s.adjustLimit(now.idleFraction(last))
				last = now
			}
		}
		if err != nil { // the CPU load is unknown
			s.mu.Lock()
			s.limit = s.minLimit
			s.mu.Unlock()
		}
	}
}

// adjustLimit applies the next limit for this fraction of idle CPU time. waiting means that starts still wait.
func (s *Slots) adjustLimit(idle float64) (waiting bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit = limitInput{Limit: s.limit, Min: s.minLimit, Max: s.maxLimit, Waiting: len(s.queue), Idle: idle}.nextLimit()
	s.grantSlots()
	return len(s.queue) > 0
}

// limitInput is the input for the next limit of parallel starts.
type limitInput struct {
	Limit    int // current limit
	Min, Max int
	Waiting  int     // number of starts without a slot
	Idle     float64 // fraction of idle CPU time since the last adjustment; negative: unknown
}

// Fractions of idle CPU time: the limit grows from idleToGrow and shrinks below idleToShrink.
const (
	idleToGrow   = 0.25
	idleToShrink = 0.05
)

// nextLimit returns the next limit of parallel starts: more if the CPU is idle, fewer if it is busy, p.Min if no start
// waits.
func (p limitInput) nextLimit() int {
	switch {
	case p.Waiting == 0:
		return p.Min
	case p.Idle >= idleToGrow:
		return min(p.Limit+max(p.Limit/4, 1), p.Max)
	case p.Idle >= 0 && p.Idle < idleToShrink:
		return max(p.Limit-1, p.Min)
	}
	return p.Limit
}
