// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"maps"
	"sync"
	"time"
)

// untold is what the cluster has yet to be told, the newest for each key.
type untold[K comparable, V any] struct {
	tell func(context.Context, *V) (done bool) // again and again, until it is done
	wake chan struct{}                         // holds a token when there is something new

	mu  sync.Mutex // guards what follows
	all map[K]*V
}

func newUntold[K comparable, V any](tell func(context.Context, *V) (done bool)) *untold[K, V] {
	return &untold[K, V]{tell: tell, wake: make(chan struct{}, 1), all: map[K]*V{}}
}

func (u *untold[K, V]) put(key K, what *V) {
	u.mu.Lock()
	u.all[key] = what
	u.mu.Unlock()
	select {
	case u.wake <- struct{}{}:
	default:
	}
}

// forget forgets a key, or only that value of it.
func (u *untold[K, V]) forget(key K, what *V) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if what == nil || u.all[key] == what {
		delete(u.all, key)
	}
}

// run tells until ctx ends. After a failure it waits for 1 s, and twice as long each time, up to 10 s.
func (u *untold[K, V]) run(ctx context.Context) error {
	wait := time.Second
	for {
		u.mu.Lock()
		all := maps.Clone(u.all)
		u.mu.Unlock()
		done := true
		for key, what := range all {
			if u.tell(ctx, what) {
				u.forget(key, what)
			} else {
				done = false
			}
		}
		var again <-chan time.Time
		if done {
			wait = time.Second
		} else {
			again, wait = time.After(wait), min(2*wait, 10*time.Second)
		}
		select {
		case <-u.wake:
		case <-again:
		case <-ctx.Done():
			return nil
		}
	}
}
