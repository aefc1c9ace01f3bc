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

// Limits for log lines about refused requests. Without limits, any client could fill the log.
const (
	logBurst  = 10          // lines at once
	logPeriod = time.Second // between further lines
	logText   = 128         // bytes of each attribute
)

// logBudget limits the number of log lines about refused requests. It is a token bucket.
type logBudget struct {
	mu       sync.Mutex // guards the fields below
	full     time.Time  // when the bucket is full again
	withheld int        // suppressed lines since the last written one
}

// takeLine takes one line from the budget of log lines, and reports whether there is one. withheld is the number of lines
// suppressed before.
func (b *logBudget) takeLine(now time.Time) (withheld int, ok bool) {
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

// logRefusal logs that the request r was refused. The log level is Debug, or Info if the API server could not decide about
// r.
func (a *Access) logRefusal(r *http.Request, user User, refusal *Refusal) {
	level := slog.LevelDebug
	if refusal.Code == http.StatusInternalServerError {
		level = slog.LevelInfo
	}
	if !a.o.Logger.Enabled(r.Context(), level) {
		return
	}
	withheld, ok := a.lines.takeLine(time.Now())
	if !ok {
		return
	}
	cause := ""
	if refusal.Err != nil {
		cause = refusal.Err.Error()
	}
	a.o.Logger.Log(r.Context(), level, "request refused", "code", refusal.Code, "method", truncateText(r.Method), "path", truncateText(r.URL.Path),
		"remote", truncateText(r.RemoteAddr), "user", truncateText(user.Name), "error", truncateText(cause), "withheld", withheld)
}

// truncateText returns at most [logText] bytes of text.
func truncateText(text string) string {
	if len(text) <= logText {
		return text
	}
	return strings.ToValidUTF8(text[:logText-3], "") + "..."
}
