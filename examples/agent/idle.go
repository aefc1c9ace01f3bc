// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	goruntime "runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// An agent that has started a hundred pods, or has listed them anew, has little to do then for hours. What it took for that is given
// back once it is idle.
const (
	// idleLook is how often it is looked at whether the agent is idle.
	idleLook = time.Minute
	// busyRounds is how many times the live heap an agent allocates between two looks that is not idle. One with 110 pods and
	// nothing to do stays below.
	busyRounds = 16
	// leastLive is a heap that is called busy by nothing smaller, in bytes. Before the first collection nothing is known to live.
	leastLive = 4 << 20
	// idlePercent is GOGC of an idle agent: a heap of 1.25 times what lives instead of twice that. With 110 pods, which allocate some
	// 20 MiB a minute at rest, that is a collection every ten seconds or so.
	idlePercent, busyPercent = 25, 100
	// regrown is by how many bytes an idle agent may have grown until it gives back again, as after a periodic list.
	regrown = 3 << 20
)

// idleness is how busy an agent was when it was looked at last.
type idleness struct {
	idle      bool
	allocated uint64 // bytes since the start
	least     int64  // bytes in memory when it had given back what it could
}

// next returns the percentage to collect garbage by, and whether to give back memory: the agent has become idle, or has grown since.
func (s *idleness) next(allocated, live uint64, resident int64) (percent int, giveBack bool) {
	was := *s
	s.idle, s.allocated = allocated-was.allocated <= busyRounds*max(live, leastLive), allocated
	if !s.idle {
		return busyPercent, false
	}
	return idlePercent, !was.idle || resident > s.least+regrown
}

// resident returns how many bytes of the process are in memory, or 0 where the kernel does not say so.
func resident() (bytes int64) {
	text, _ := os.ReadFile("/proc/self/statm")
	_, _ = fmt.Sscan(string(text), new(int64), &bytes)
	return bytes * int64(os.Getpagesize())
}

// saveMemory keeps an idle agent small until ctx ends. Who sets GOGC has decided about the heap.
func (a *agent) saveMemory(ctx context.Context) error {
	ticker := time.NewTicker(idleLook)
	defer ticker.Stop()
	var s idleness
	decided := os.Getenv("GOGC") != ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		heap := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}}
		metrics.Read(heap)
		percent, giveBack := s.next(heap[0].Value.Uint64(), heap[1].Value.Uint64(), resident())
		if !decided {
			debug.SetGCPercent(percent)
		}
		if giveBack {
			debug.FreeOSMemory()
			if err := unmapProgram(); err != nil {
				a.log.Debug("the pages of the program stay mapped", "error", err)
			}
			s.least = resident()
		}
	}
}

// profile has no profile taken of a heap that nobody can ask for: it is 1.6 MiB.
func (c *config) profile() {
	if !c.serves() || !unless(c.EnableProfilingHandler, true) {
		goruntime.MemProfileRate = 0
	}
}
