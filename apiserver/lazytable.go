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

// lazyTable is a watched table of objects that is filled only after its first use: most nodes have no pod that needs these
// objects, and an old API server does not serve them.
type lazyTable[T kubeapi.Object, V any] struct {
	table   *kubeapi.Table[T, V]
	start   func()        // called at the first use of the table: makes runTable list and watch
	started chan struct{} // closed by start
	ready   chan struct{} // closed after the first list

	mu      sync.Mutex    // guards the fields below
	changed chan struct{} // closed and replaced at each change
}

// newLazyTable returns an empty table, whose objects are listed only after its first use. onChange may be nil.
func newLazyTable[T kubeapi.Object, V any](resource kubeapi.Resource[T], opts kubeapi.TableOptions[T, V], onChange func(keys ...string)) *lazyTable[T, V] {
	d := &lazyTable[T, V]{started: make(chan struct{}), ready: make(chan struct{}), changed: make(chan struct{})}
	d.start = sync.OnceFunc(func() { close(d.started) })
	ready := closeOnce(d.ready)
	opts.Changed = func(keys ...string) {
		ready()
		d.mu.Lock()
		close(d.changed)
		d.changed = make(chan struct{})
		d.mu.Unlock()
		if onChange != nil {
			onChange(keys...)
		}
	}
	d.table = kubeapi.NewTable(resource, opts)
	return d
}

// runTable waits for the first use of the table, and then lists and watches its objects until ctx ends.
func (d *lazyTable[T, V]) runTable(ctx context.Context) error {
	select {
	case <-d.started:
		return d.table.Run(ctx)
	case <-ctx.Done():
		return nil
	}
}

// nextChange returns a channel that is closed at the next change of the table.
func (d *lazyTable[T, V]) nextChange() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.changed
}

// awaitFirstList makes runTable start to list, and waits at most firstListWait (2 s) for the first list. The text of the
// error names the resource.
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
