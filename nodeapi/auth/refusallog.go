// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"
)

// What refused requests may write to the log: anybody can send them.
const (
	logBurst  = 10          // lines at once
	logPeriod = time.Second // from one line to the next, after these
	logText   = 128         // bytes of each attribute
)

// logBudget is a token bucket of lines.
type logBudget struct {
	mu       sync.Mutex // guards what follows
	full     time.Time  // when it has logBurst lines again
	withheld int        // lines since the last one
}

// take reports whether a line may be written at now, and how many were withheld before it.
func (b *logBudget) take(now time.Time) (withheld int, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.full.Before(now) {
		b.full = now
	}
	if b.full.Sub(now) > (logBurst-1)*logPeriod {
		b.withheld++
		return 0, false
	}
	b.full = b.full.Add(logPeriod)
	withheld, b.withheld = b.withheld, 0
	return withheld, true
}

// logRefusal writes a line about a request that is refused: what a client has done at Debug, that the API server has no answer at
// Info.
func (a *Access) logRefusal(r *http.Request, user User, refusal *Refusal) {
	level := slog.LevelDebug
	if refusal.Code == http.StatusInternalServerError {
		level = slog.LevelInfo
	}
	if !a.o.Logger.Enabled(r.Context(), level) {
		return
	}
	withheld, ok := a.lines.take(time.Now())
	if !ok {
		return
	}
	cause := ""
	if refusal.Err != nil {
		cause = refusal.Err.Error()
	}
	a.o.Logger.Log(r.Context(), level, "request refused", "code", refusal.Code, "method", shorten(r.Method), "path", shorten(r.URL.Path),
		"remote", shorten(r.RemoteAddr), "user", shorten(user.Name), "error", shorten(cause), "withheld", withheld)
}

// shorten returns a text of at most [logText] bytes.
func shorten(text string) string {
	if len(text) <= logText {
		return text
	}
	return strings.ToValidUTF8(text[:logText-3], "") + "..."
}
