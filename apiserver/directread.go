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

// maxAbsences limits the objects of each kind that are recorded as not found.
const maxAbsences = 20_000

// absencePolicy returns the back-off before the next GET request for an object that does not exist.
func absencePolicy() backoff.Policy { return backoff.Policy{First: time.Minute, Max: 8 * time.Minute} }

// absence records that an object was not found by direct reads.
type absence struct {
	misses  int       // not-found responses in a row
	retryAt time.Time // earliest next read
}

// canWatch reports whether the object may be watched rather than read by GET requests: watches are limited in number. The
// caller holds w.mu.
func (w *objectWatcher[T]) canWatch(namespace, key string) bool {
	if len(w.watches) >= maxWatches {
		return false
	}
	if r, found := w.references[key]; found {
		// the first maxPodWatches objects of a pod are watchable
		return r.watchable
	}
	// No listed pod refers to the object. Watches of such objects are counted per namespace.
	unknown := 0
	for _, e := range w.watches {
		if e.namespace == namespace && !e.referenced {
			unknown++
		}
	}
	return unknown < maxPodWatches
}

// setReferences replaces the set of objects that the listed pods refer to, and deletes outdated records. The caller holds
// w.mu.
func (w *objectWatcher[T]) setReferences(now time.Time, referenced map[string]reference) {
	maps.DeleteFunc(w.budgets, func(_ string, b *readBudget) bool { return b.isFull(now) })
	if referenced == nil { // unchanged
		return
	}
	w.references = referenced
	maps.DeleteFunc(w.absences, func(key string, _ absence) bool { _, still := referenced[key]; return !still })
}

// readDirect sends a GET request for an object that is not watched. For a missing object, later calls send none for 1 to 8
// minutes.
func (w *objectWatcher[T]) readDirect(ctx context.Context, namespace, name string) (object T, exists bool, err error) {
	key := kubeapi.Key(namespace, name)
	w.mu.Lock()
	last := w.absences[key]
	w.mu.Unlock()
	if time.Now().Before(last.retryAt) {
		return object, false, nil
	}
	if err := w.awaitReadBudget(ctx, namespace, key); err != nil {
		return object, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, cacheFallbackWait)
	defer cancel()
	object, err = readObject(ctx, w.directClient, w.kind, namespace, name)
	missing := errors.Is(err, fs.ErrNotExist)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !missing {
		delete(w.absences, key)
		return object, err == nil, err
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
