// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"time"

	"github.com/seed81659283/nodeagent/internal/backoff"
	"github.com/seed81659283/nodeagent/internal/kubeapi"
)

// maxAbsent is how many objects that do not exist are remembered, of each kind.
const maxAbsent = 20_000

// absentPolicy is for how long an object that did not exist is not read again.
func absentPolicy() backoff.Policy { return backoff.Policy{First: time.Minute, Max: 8 * time.Minute} }

// absence is that of an object, by the last plain requests for it.
type absence struct {
	times int
	until time.Time // it is not asked for before
}

// mayWatch reports whether a watch of one more object may begin: it is within the share of a pod, or no pod is known yet to refer to it and
// its namespace has no more such watches than a share. The caller holds the lock.
func (w *watched[T]) mayWatch(namespace, key string) bool {
	if len(w.entries) >= maxWatched {
		return false
	}
	if r, known := w.known[key]; known {
		return r.share
	}
	unknown := 0
	for _, e := range w.entries {
		if e.namespace == namespace && !e.pinned {
			unknown++
		}
	}
	return unknown < podShare
}

// retain takes what pods refer to; nil means that this has not changed. The caller holds the lock.
func (w *watched[T]) retain(now time.Time, referenced map[string]reference) {
	maps.DeleteFunc(w.budgets, func(_ string, b *budget) bool { return b.full(now) })
	if referenced == nil {
		return
	}
	w.known = referenced
	maps.DeleteFunc(w.absent, func(key string, _ absence) bool { _, still := referenced[key]; return !still })
}

// read reads an object that is not watched. One that does not exist is not read again for a minute, and then less often.
func (w *watched[T]) read(ctx context.Context, namespace, name string) (o T, exists bool, err error) {
	key := kubeapi.Key(namespace, name)
	w.mu.Lock()
	last := w.absent[key]
	w.mu.Unlock()
	if time.Now().Before(last.until) {
		return o, false, nil
	}
	if err := w.awaitTurn(ctx, namespace, key); err != nil {
		return o, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, keptWait)
	defer cancel()
	o, err = read(ctx, w.plain, w.kind, namespace, name)
	missing := errors.Is(err, fs.ErrNotExist)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !missing {
		delete(w.absent, key)
		return o, err == nil, err
	}
	if w.absent == nil {
		w.absent = map[string]absence{}
	}
	if _, was := w.absent[key]; was || len(w.absent) < maxAbsent {
		times := last.times + 1
		w.absent[key] = absence{times: times, until: time.Now().Add(absentPolicy().After(times))}
	}
	var none T
	return none, false, nil
}
