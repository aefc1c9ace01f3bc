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

// isFull reports whether the pod has used nothing of its budget recently, so that podReadBurst reads may be sent at once. A
// full budget need not be stored.
func (b *readBudget) isFull(now time.Time) bool { return !b.nextSlot.After(now) }

// reserveRead takes one read from the budget. wait is the time for which the caller must wait before it sends the read. If
// this exceeds maxWait, ok is false and the budget does not change.
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

// awaitReadBudget waits until the rate limit permits a GET request for an object that is not watched. Each pod has its own
// limit, so that a pod that refers to thousands of objects does not delay the requests of other pods. If the wait would be
// too long, it returns a readBudgetError at once. If ctx ends, it returns the error of ctx.
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

// reservePodRead takes one GET request from the read budget of the pod that refers to the object with this key. If no listed
// pod refers to the object, it uses the budget of the namespace. pod is the key of that pod, or the namespace. wait is the
// delay before the request. After a delay that is not zero, the caller must decrement budget.waiting. ok is false if the
// delay would be too long.
func (w *objectWatcher[T]) reservePodRead(namespace, key string) (pod string, budget *readBudget, wait time.Duration, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	pod = namespace
	if r, found := w.references[key]; found {
		pod = r.pod
	}
	if budget = w.budgets[pod]; budget == nil {
		budget = &readBudget{}
		w.budgets[pod] = budget
	}
	maxWait := time.Duration(maxReadWait)
	if budget.waiting >= maxWaitingReads {
		maxWait = 0
	}
	if wait, ok = budget.reserveRead(time.Now(), maxWait); ok && wait > 0 {
		budget.waiting++
	}
	return pod, budget, wait, ok
}

// readBudgetError reports that a pod refers to too many objects, so that this object is not read now. The API server is not at
// fault.
type readBudgetError struct{ message string }

func (e *readBudgetError) Error() string { return e.message }

func isReadBudgetError(err error) bool {
	_, ok := errors.AsType[*readBudgetError](err)
	return ok
}
