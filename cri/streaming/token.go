// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package streaming

import (
	"maps"
	"net/http"
	"time"
)

// tokens has the sessions that were asked for and that no client has come for, by the paths of their URLs.
type urlTokens struct {
	lifetime time.Duration
	limit    int
	pending  map[string]pendingSession
}

// waiting is a session before its client has come.
type pendingSession struct {
	serve   http.HandlerFunc
	expires time.Time
}

// add remembers a session, and reports whether there was room for it.
func (t *urlTokens) addSession(now time.Time, path string, serve http.HandlerFunc) bool {
	t.removeExpired(now)
	if len(t.pending) >= t.limit {
		return false
	}
	t.pending[path] = pendingSession{serve, now.Add(t.lifetime)}
	return true
}

// take returns the session at a path, for the one who asks first and in time, or nil.
func (t *urlTokens) takeSession(now time.Time, path string) http.HandlerFunc {
	w, found := t.pending[path]
	delete(t.pending, path)
	if !found || !w.expires.After(now) {
		return nil
	}
	return w.serve
}

// expire forgets the sessions whose time is over.
func (t *urlTokens) removeExpired(now time.Time) {
	maps.DeleteFunc(t.pending, func(_ string, w pendingSession) bool { return !w.expires.After(now) })
}
