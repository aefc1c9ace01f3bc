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

// absencePolicy returns the back-off between two reads of an object that does not exist.
func absencePolicy() backoff.Policy { return backoff.Policy{First: time.Minute, Max: 8 * time.Minute} }

// absence records that an object was not found by direct reads.
type absence struct {
	misses  int       // not-found responses in a row
	retryAt time.Time // earliest next read
}

// canWatch reports whether one more object may be watched. The object must be among the first maxPodWatches of its pod. If no
// listed pod refers to it, its namespace may have maxPodWatches such watches. The caller holds w.mu.
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

// setReferences stores the objects that pods refer to, and drops records of other objects; nil keeps them. The caller holds w.mu.
func (w *objectWatcher[T]) setReferences(now time.Time, referenced map[string]reference) {
	maps.DeleteFunc(w.budgets, func(_ string, b *readBudget) bool { return b.isFull(now) })
	if referenced == nil {
		return
	}
	w.references = referenced
	maps.DeleteFunc(w.absences, func(key string, _ absence) bool { _, still := referenced[key]; return !still })
}

// readDirect reads an unwatched object by a GET request, within the budget of its pod. An object that was not found is not read
// again for a minute, doubling to 8 minutes.
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
