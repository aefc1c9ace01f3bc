// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package retryqueue keeps the newest unsent report of each key and sends it until the receiver accepts it. It does not persist reports.
package retryqueue

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/internal/sleep"
)

// The pause after a failed round starts with minPause and doubles up to maxPause.
const (
	minPause = time.Second
	maxPause = 10 * time.Second
)

// Queue holds the unsent reports. Its methods may be called from any goroutine.
type Queue[K comparable, V any] struct {
	send func(ctx context.Context, report *V) (sent bool)
	wake chan struct{} // has a token after Put

	mu      sync.Mutex // guards pending
	pending map[K]*V
}

// New returns an empty queue. [Queue.Run] sends each report by calling send, and repeats the call until send returns true.
// Only Run calls send, and it holds no lock during the call.
func New[K comparable, V any](send func(ctx context.Context, report *V) (sent bool)) *Queue[K, V] {
	return &Queue[K, V]{send: send, wake: make(chan struct{}, 1), pending: map[K]*V{}}
}

// Put stores report as the newest report for key, in place of an older one, and wakes Run.
func (q *Queue[K, V]) Put(key K, report *V) {
	q.mu.Lock()
	q.pending[key] = report
	q.mu.Unlock()
	sleep.Wake(q.wake)
}

// Remove drops the report for key.
func (q *Queue[K, V]) Remove(key K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.pending, key)
}

// Pending reports whether the queue still contains this report for key. It returns false after the report was sent, removed
// or replaced.
func (q *Queue[K, V]) Pending(key K, report *V) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.pending[key] == report
}

// removeSent removes a report that was sent. If Put has replaced it with a newer report for key, it does nothing.
func (q *Queue[K, V]) removeSent(key K, report *V) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.pending[key] == report {
		delete(q.pending, key)
	}
}

// Run sends the reports until ctx ends. If a report cannot be sent, it pauses for 1 s, doubling to 10 s. Put ends the pause
// early.
func (q *Queue[K, V]) Run(ctx context.Context) error {
	pause := minPause
	for {
		var retry <-chan time.Time
		if q.sendAll(ctx) {
			pause = minPause
		} else {
			retry, pause = time.After(pause), min(2*pause, maxPause)
		}
		select {
		case <-q.wake:
		case <-retry:
		case <-ctx.Done():
			return nil
		}
	}
}

// sendAll calls send once for each pending report. It returns true if it has sent all pending reports.
func (q *Queue[K, V]) sendAll(ctx context.Context) bool {
	q.mu.Lock()
	pending := maps.Clone(q.pending)
	q.mu.Unlock()
	all := true
	for key, report := range pending {
		if q.send(ctx, report) {
			q.removeSent(key, report)
		} else {
			all = false
		}
	}
	return all
}
