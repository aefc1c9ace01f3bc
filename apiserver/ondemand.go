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
type lazyTable[T kubeapi.Object, V any] struct {
	table   *kubeapi.Table[T, V]
	start   func()        // has run begin
	started chan struct{} // closed by ask
	ready   chan struct{} // closed after the first list

	mu      sync.Mutex    // guards what follows
	changed chan struct{} // closed when anything has changed, and replaced
}

// newOnDemand returns a table without rows. Hears gets the keys that have changed, from run's goroutine; nil: nobody does.
func newLazyTable[T kubeapi.Object, V any](r kubeapi.Resource[T], o kubeapi.TableOptions[T, V], onChange func(keys ...string)) *lazyTable[T, V] {
	d := &lazyTable[T, V]{started: make(chan struct{}), ready: make(chan struct{}), changed: make(chan struct{})}
	d.start = sync.OnceFunc(func() { close(d.started) })
	ready := closeOnce(d.ready)
	o.Changed = func(keys ...string) {
		ready()
		d.mu.Lock()
		close(d.changed)
		d.changed = make(chan struct{})
		d.mu.Unlock()
		if onChange != nil {
			onChange(keys...)
		}
	}
	d.table = kubeapi.NewTable(r, o)
	return d
}

// run fills the table until ctx ends, once somebody has asked.
func (d *lazyTable[T, V]) runTable(ctx context.Context) error {
	select {
	case <-d.started:
		return d.table.Run(ctx)
	case <-ctx.Done():
		return nil
	}
}

// next returns a channel that is closed when anything has changed since.
func (d *lazyTable[T, V]) nextChange() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.changed
}

// await returns when the table has been filled once, or why it has not after 2 s.
func (d *lazyTable[T, V]) awaitFirstList(ctx context.Context, resource string) error {
	d.start()
	timer := time.NewTimer(firstListWait)
	defer timer.Stop()
	select {
	case <-d.ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return fmt.Errorf("%s: %w", resource, notSyncedError(d.table.Status()))
	}
}
