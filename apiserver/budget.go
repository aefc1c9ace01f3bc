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

// The budgets of plain requests for objects that volumes show and that are not watched: of a pod for one kind, and of the node.
const (
	podReadInterval = 100 * time.Millisecond // between two requests for one pod, once podBurst is used up
	podReadBurst    = 100
	directReadQPS   = 25
	directReadBurst = 100
	maxReadWait     = cacheFallbackWait // the longest wait of a request for its turn
	maxWaitingReads = 2                 // requests for one pod that wait for their turn; more fail, as each occupies a step of package volume
)

// budget is that of the requests for one pod. The zero value is full.
type readBudget struct {
	nextSlot time.Time // when a request is due if all requests have podGap between them
	waiting  int       // requests that wait for their turn
}

// full reports whether podBurst requests may be sent at once.
func (b *readBudget) isFull(now time.Time) bool { return !b.nextSlot.After(now) }

// take returns how long a request must wait for its turn. ok is false, and the budget unchanged, if that is longer than most.
func (b *readBudget) reserveRead(now time.Time, maxWait time.Duration) (wait time.Duration, ok bool) {
	next := b.nextSlot
	if next.Before(now) {
		next = now
	}
	if wait = max(next.Sub(now)-(podReadBurst-1)*podReadInterval, 0); wait > maxWait {
		return 0, false
	}
	b.nextSlot = next.Add(podReadInterval)
	return wait, true
}

// awaitTurn waits until a plain request for an object may be sent: so a pod that refers to thousands of objects uses up neither the requests of
// the node nor the steps of package volume. A pod that is not known yet shares the budget of its namespace.
func (w *objectWatcher[T]) awaitReadBudget(ctx context.Context, namespace, key string) error {
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

// takeTurn takes a request from the budget of the pod that refers to an object, and returns how long it must wait. ok is false if that is too long.
func (w *objectWatcher[T]) reservePodRead(namespace, key string) (pod string, b *readBudget, wait time.Duration, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	pod = namespace
	if r, found := w.references[key]; found {
		pod = r.pod
	}
	if b = w.budgets[pod]; b == nil {
		b = &readBudget{}
		w.budgets[pod] = b
	}
	maxWait := time.Duration(maxReadWait)
	if b.waiting >= maxWaitingReads {
		maxWait = 0
	}
	if wait, ok = b.reserveRead(time.Now(), maxWait); ok && wait > 0 {
		b.waiting++
	}
	return pod, b, wait, ok
}

// tooManyError is why an object is not read now. It says nothing of the API server.
type readBudgetError struct{ message string }

func (e *readBudgetError) Error() string { return e.message }

func isReadBudgetError(err error) bool {
	_, ok := errors.AsType[*readBudgetError](err)
	return ok
}
