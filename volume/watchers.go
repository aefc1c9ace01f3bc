// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"sync"
)

// JoinWatchers returns a Watcher that notices what any of several does. When one of them fails all end, and are called again as
// one would be.
func JoinWatchers(watchers ...Watcher) Watcher { return joinedWatchers(watchers) }

// joinedWatchers are several watchers that are one.
type joinedWatchers []Watcher

// Watch runs all of them.
func (j joinedWatchers) Watch(ctx context.Context, changed func(kind, namespace, name string)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	var once sync.Once
	var first error
	for _, w := range j {
		wg.Go(func() {
			err := w.Watch(ctx, changed)
			once.Do(func() { first = err })
			cancel()
		})
	}
	if len(j) == 0 {
		<-ctx.Done()
		return ctx.Err()
	}
	wg.Wait()
	return first
}
