// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package streaming

import (
	"maps"
	"net/http"
	"time"
)

// urlTokens has the sessions that were requested and whose clients have not connected yet. The keys of pending are URL paths.
type urlTokens struct {
	lifetime time.Duration
	limit    int
	pending  map[string]pendingSession
}

// pendingSession is a session that was requested and whose client has not connected yet.
type pendingSession struct {
	serve   http.HandlerFunc
	expires time.Time
}

// addSession stores serve, the handler for the first request to the URL path. The URL expires t.lifetime after now. It
// returns false if there are too many unused URLs.
func (t *urlTokens) addSession(now time.Time, path string, serve http.HandlerFunc) bool {
	t.removeExpired(now)
	if len(t.pending) >= t.limit {
		return false
	}
	t.pending[path] = pendingSession{serve, now.Add(t.lifetime)}
	return true
}

// takeSession returns the handler of this URL path, or nil, and removes it: a URL is valid for one request.
func (t *urlTokens) takeSession(now time.Time, path string) http.HandlerFunc {
	w, found := t.pending[path]
	delete(t.pending, path)
	if !found || !w.expires.After(now) {
		return nil
	}
	return w.serve
}

// removeExpired removes the sessions whose URLs have expired.
func (t *urlTokens) removeExpired(now time.Time) {
	maps.DeleteFunc(t.pending, func(_ string, w pendingSession) bool { return !w.expires.After(now) })
}
