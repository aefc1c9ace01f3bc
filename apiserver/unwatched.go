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
const maxAbsences = 20_000

// absentPolicy is for how long an object that did not exist is not read again.
func absencePolicy() backoff.Policy { return backoff.Policy{First: time.Minute, Max: 8 * time.Minute} }

// absence is that of an object, by the last plain requests for it.
type absence struct {
	misses  int
	retryAt time.Time // it is not asked for before
}

// mayWatch reports whether a watch of one more object may begin: it is within the share of a pod, or no pod is known yet to refer to it and
// its namespace has no more such watches than a share. The caller holds the lock.
func (w *objectWatcher[T]) canWatch(namespace, key string) bool {
	if len(w.watches) >= maxWatches {
		return false
	}
	if r, found := w.references[key]; found {
		return r.watchable
	}
	unknown := 0
	for _, e := range w.watches {
		if e.namespace == namespace && !e.referenced {
			unknown++
		}
	}
	return unknown < maxPodWatches
}

// retain takes what pods refer to; nil means that this has not changed. The caller holds the lock.
func (w *objectWatcher[T]) setReferences(now time.Time, referenced map[string]reference) {
	maps.DeleteFunc(w.budgets, func(_ string, b *readBudget) bool { return b.isFull(now) })
	if referenced == nil {
		return
	}
	w.references = referenced
	maps.DeleteFunc(w.absences, func(key string, _ absence) bool { _, still := referenced[key]; return !still })
}

// read reads an object that is not watched. One that does not exist is not read again for a minute, and then less often.
func (w *objectWatcher[T]) readDirect(ctx context.Context, namespace, name string) (o T, exists bool, err error) {
	key := kubeapi.Key(namespace, name)
	w.mu.Lock()
	last := w.absences[key]
	w.mu.Unlock()
	if time.Now().Before(last.retryAt) {
		return o, false, nil
	}
	if err := w.awaitReadBudget(ctx, namespace, key); err != nil {
		return o, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, cacheFallbackWait)
	defer cancel()
	o, err = readObject(ctx, w.directClient, w.kind, namespace, name)
	missing := errors.Is(err, fs.ErrNotExist)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !missing {
		delete(w.absences, key)
		return o, err == nil, err
	}
	if w.absences == nil {
		w.absences = map[string]absence{}
	}
	if _, was := w.absences[key]; was || len(w.absences) < maxAbsences {
		times := last.misses + 1
		w.absences[key] = absence{misses: times, retryAt: time.Now().Add(absencePolicy().After(times))}
	}
	var none T
	return none, false, nil
}
