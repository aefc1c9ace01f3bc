// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package memreturn

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// period is the time between two measurements of the process's memory.
const period = time.Minute

// Run returns unused memory to the kernel when the process is idle, until ctx ends. It also sets GOGC, unless the operator
// has set the environment variable GOGC. A nil logger discards all messages.
func Run(ctx context.Context, logger *slog.Logger) error {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	var s state
	setsPercent := os.Getenv("GOGC") == ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		p := s.nextPlan(measureMemory())
		if setsPercent {
			debug.SetGCPercent(p.gcPercent)
		}
		if p.returnMemory {
			if err := ReturnNow(); err != nil {
				logger.Debug("unmap pages of the program", "error", err)
			}
			s.returned = residentBytes()
		}
	}
}

// measureMemory returns the current memory usage of this process.
func measureMemory() usage {
	heap := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(heap)
	return usage{allocated: heap[0].Value.Uint64(), live: heap[1].Value.Uint64(), resident: residentBytes()}
}

// residentBytes returns the resident memory of this process, or 0 if the kernel does not report it.
func residentBytes() (bytes int64) {
	text, _ := os.ReadFile("/proc/self/statm")
	_, _ = fmt.Sscan(string(text), new(int64), &bytes)
	return bytes * int64(os.Getpagesize())
}
