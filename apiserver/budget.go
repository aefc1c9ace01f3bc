// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed81659283/nodeagent/internal/sleep"
)

// The limits of direct reads: single GET requests for config maps and secrets that pod volumes refer to and that the agent does
// not watch. They apply per pod and kind, and to the whole node.
const (
	podReadInterval = 100 * time.Millisecond // between two reads for one pod, after podReadBurst reads
	podReadBurst    = 100                    // reads that one pod may send at once
	directReadQPS   = 25                     // reads of the node per second, per client
	directReadBurst = 100                    // reads that the node may send at once
	maxReadWait     = cacheFallbackWait      // a read that would have to wait longer returns an error
	maxWaitingReads = 2                      // reads of one pod that may wait at a time, since each blocks a worker of package volume
)

// readBudget limits the rate of direct reads (GET requests for objects that are not watched) of one pod. The zero value allows
// podReadBurst reads at once.
type readBudget struct {
	nextSlot time.Time // when the next read would be due if all reads were spaced by podReadInterval
	waiting  int       // reads that wait for the rate limit
}

// isFull reports whether podReadBurst reads may be sent at once. A full budget need not be stored.
func (b *readBudget) isFull(now time.Time) bool { return !b.nextSlot.After(now) }

// reserveRead takes one read from the budget, and returns how long the caller must wait before sending it. If that exceeds
// maxWait, ok is false.
func (b *readBudget) reserveRead(now time.Time, maxWait time.Duration) (wait time.Duration, ok bool) {
	slot := b.nextSlot
	if slot.Before(now) {
		slot = now
	}
	if wait = max(slot.Sub(now)-(podReadBurst-1)*podReadInterval, 0); wait > maxWait {
		return 0, false
	}
	b.nextSlot = slot.Add(podReadInterval)
	return wait, true
}

// awaitReadBudget waits until the rate limit of a pod permits a GET request. It returns a readBudgetError if that takes too
// long.
func (w *objectWatcher[T]) awaitReadBudget(ctx context.Context, namespace, key string) error {
	// a limit per pod, so that a pod that refers to thousands of objects does not delay other pods
	pod, b, wait, ok := w.reservePodRead(namespace, key)
	if !ok {
		return &readBudgetError{fmt.Sprintf("%s %s: pod %s refers to too many: beyond %d, a pod has %d requests at once and %d a second",
			w.kind.Resource(), key, pod, maxPodWatches, podReadBurst, time.Second/podReadInterval)}
	}
	if wait <= 0 {
		return nil
	}
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		b.waiting--
	}()
	return sleep.For(ctx, wait)
}

// reservePodRead takes one GET request from the budget of the pod that refers to the object, or of the namespace if none does.
func (w *objectWatcher[T]) reservePodRead(namespace, key string) (owner string, budget *readBudget, wait time.Duration, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	owner = namespace
	if r, found := w.references[key]; found {
		owner = r.pod
	}
	if budget = w.budgets[owner]; budget == nil {
		budget = &readBudget{}
		w.budgets[owner] = budget
	}
	maxWait := maxReadWait
	if budget.waiting >= maxWaitingReads {
		maxWait = 0
	}
	if wait, ok = budget.reserveRead(time.Now(), maxWait); ok && wait > 0 {
		budget.waiting++ // the caller decrements it after the wait
	}
	return owner, budget, wait, ok
}

// readBudgetError reports that a pod refers to too many objects, so that this object is not read now. The API server is not at
// fault.
type readBudgetError struct{ message string }

func (e *readBudgetError) Error() string { return e.message }

func isReadBudgetError(err error) bool {
	_, ok := errors.AsType[*readBudgetError](err)
	return ok
}
