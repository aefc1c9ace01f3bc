// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/internal/kubeapi"
)

// onDemand is a table that is filled from when somebody asks for it: most nodes have no pod that does, and an older API server does not
// know the resource.
type onDemand[T kubeapi.Object, V any] struct {
	table *kubeapi.Table[T, V]
	ask   func()        // has run begin
	asked chan struct{} // closed by ask
	ready chan struct{} // closed after the first list

	mu      sync.Mutex    // guards what follows
	changed chan struct{} // closed when anything has changed, and replaced
}

// newOnDemand returns a table without rows. Hears gets the keys that have changed, from run's goroutine; nil: nobody does.
func newOnDemand[T kubeapi.Object, V any](r kubeapi.Resource[T], o kubeapi.TableOptions[T, V], hears func(keys ...string)) *onDemand[T, V] {
	d := &onDemand[T, V]{asked: make(chan struct{}), ready: make(chan struct{}), changed: make(chan struct{})}
	d.ask = sync.OnceFunc(func() { close(d.asked) })
	ready := onceClosed(d.ready)
	o.Changed = func(keys ...string) {
		ready()
		d.mu.Lock()
		close(d.changed)
		d.changed = make(chan struct{})
		d.mu.Unlock()
		if hears != nil {
			hears(keys...)
		}
	}
	d.table = kubeapi.NewTable(r, o)
	return d
}

// run fills the table until ctx ends, once somebody has asked.
func (d *onDemand[T, V]) run(ctx context.Context) error {
	select {
	case <-d.asked:
		return d.table.Run(ctx)
	case <-ctx.Done():
		return nil
	}
}

// next returns a channel that is closed when anything has changed since.
func (d *onDemand[T, V]) next() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.changed
}

// await returns when the table has been filled once, or why it has not after 2 s.
func (d *onDemand[T, V]) await(ctx context.Context, what string) error {
	d.ask()
	timer := time.NewTimer(syncWait)
	defer timer.Stop()
	select {
	case <-d.ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return fmt.Errorf("%s: %w", what, notSynced(d.table.Status()))
	}
}
