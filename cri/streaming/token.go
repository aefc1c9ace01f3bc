// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package streaming

import (
	"maps"
	"net/http"
	"time"
)

// tokens has the sessions that were asked for and that no client has come for, by the paths of their URLs.
type tokens struct {
	life    time.Duration
	limit   int
	waiting map[string]waiting
}

// waiting is a session before its client has come.
type waiting struct {
	serve   http.HandlerFunc
	expires time.Time
}

// add remembers a session, and reports whether there was room for it.
func (t *tokens) add(now time.Time, path string, serve http.HandlerFunc) bool {
	t.expire(now)
	if len(t.waiting) >= t.limit {
		return false
	}
	t.waiting[path] = waiting{serve, now.Add(t.life)}
	return true
}

// take returns the session at a path, for the one who asks first and in time, or nil.
func (t *tokens) take(now time.Time, path string) http.HandlerFunc {
	w, found := t.waiting[path]
	delete(t.waiting, path)
	if !found || !w.expires.After(now) {
		return nil
	}
	return w.serve
}

// expire forgets the sessions whose time is over.
func (t *tokens) expire(now time.Time) {
	maps.DeleteFunc(t.waiting, func(_ string, w waiting) bool { return !w.expires.After(now) })
}
