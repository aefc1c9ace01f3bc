// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// history has the last lines of the log and the calls, for the analysis of a failure. Random operations are not fully
// reproducible, because goroutines that are due at the same time run in any order.
type history struct {
	began time.Time

	mu    sync.Mutex
	lines []string
}

// historyLines is the number of lines that are kept.
const historyLines = 1000

// newHistory returns a history that a failed test prints.
func newHistory(t *testing.T) *history {
	h := &history{began: time.Now()}
	t.Cleanup(func() {
		if t.Failed() {
			h.mu.Lock()
			defer h.mu.Unlock()
			t.Log("last events:\n" + strings.Join(h.lines, "\n"))
		}
	})
	return h
}

func (h *history) add(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, fmt.Sprintf("%9.3f ", time.Since(h.began).Seconds())+fmt.Sprintf(format, args...))
	if len(h.lines) == 2*historyLines {
		h.lines = slices.Delete(h.lines, 0, historyLines)
	}
}

// Write appends a line of a log.
func (h *history) Write(line []byte) (int, error) {
	h.add("      %s", strings.TrimSuffix(string(line), "\n"))
	return len(line), nil
}

// logger returns a logger that writes to the history.
func (h *history) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(h, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}
