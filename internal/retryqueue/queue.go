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

// New returns an empty queue whose Run passes each report to send until send returns true. send is called by Run alone, with no lock held.
func New[K comparable, V any](send func(ctx context.Context, report *V) (sent bool)) *Queue[K, V] {
	return &Queue[K, V]{send: send, wake: make(chan struct{}, 1), pending: map[K]*V{}}
}

// Put replaces the report of key and wakes Run.
func (q *Queue[K, V]) Put(key K, report *V) {
	q.mu.Lock()
	q.pending[key] = report
	q.mu.Unlock()
	sleep.Wake(q.wake)
}

// Remove drops the report of key.
func (q *Queue[K, V]) Remove(key K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.pending, key)
}

// Pending reports whether a report waits to be sent, and was neither removed nor replaced.
func (q *Queue[K, V]) Pending(key K, report *V) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.pending[key] == report
}

// removeSent drops the report of key unless Put has replaced it.
func (q *Queue[K, V]) removeSent(key K, report *V) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.pending[key] == report {
		delete(q.pending, key)
	}
}

// Run sends reports until ctx ends. After a failure it pauses for 1 s, then twice as long each time, up to 10 s; Put cuts the pause short.
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

// sendAll passes each pending report to send once, and reports whether all were sent.
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
