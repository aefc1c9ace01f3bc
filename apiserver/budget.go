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
	podReadInterval = 100 * time.Millisecond // between two reads for one pod, once podReadBurst is used up
	podReadBurst    = 100                    // reads that one pod may send at once
	directReadQPS   = 25                     // reads of the node per second, per client
	directReadBurst = 100                    // reads that the node may send at once
	maxReadWait     = cacheFallbackWait      // a read that would wait longer for its slot fails
	maxWaitingReads = 2                      // reads of one pod that may wait at a time; more fail, because each one blocks a worker of package volume
)

// readBudget limits the rate of direct reads (GET requests for objects that are not watched) of one pod. The zero value allows
// podReadBurst reads at once.
type readBudget struct {
	nextSlot time.Time // when the next read would be due if all reads were spaced by podReadInterval
	waiting  int       // reads that wait for their slot
}

// isFull reports whether no read has used the budget lately, so that podReadBurst reads may be sent at once.
func (b *readBudget) isFull(now time.Time) bool { return !b.nextSlot.After(now) }

// reserveRead takes one read from the budget and returns how long the caller must wait before it sends the read. If that is
// longer than maxWait, ok is false and the budget is unchanged.
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

// awaitReadBudget waits until a GET for an unwatched object may be sent. The budget keeps a pod that refers to thousands of
// objects from using all requests of the node. An object that no listed pod refers to uses a budget of its namespace. The error
// is a readBudgetError, or that of ctx.
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

// reservePodRead takes one read from the budget of the pod that refers to the object of key. ok is false if the read would wait
// too long. The caller must decrement b.waiting after a wait.
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

// readBudgetError reports that a pod refers to too many objects, so that this object is not read now. The API server is not at
// fault.
type readBudgetError struct{ message string }

func (e *readBudgetError) Error() string { return e.message }

func isReadBudgetError(err error) bool {
	_, ok := errors.AsType[*readBudgetError](err)
	return ok
}
