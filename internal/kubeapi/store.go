// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/internal/runonce"
)

// StoreOptions configures a [Store]. The zero value keeps all objects of the resource.
type StoreOptions[T Object] = TableOptions[T, T]

// TableOptions configures a [Table].
type TableOptions[T Object, V any] struct {
	// LabelSelector and FieldSelector select the objects, as in the Kubernetes API. Empty means all.
	LabelSelector, FieldSelector string
	// Transform returns the value that the table stores for an object. It may change the object. Nil stores the object itself;
	// V must then be T.
	Transform func(T) V
	// Changed is called with the keys of added, changed and removed objects, from Run's goroutine with no lock held. It is always
	// called after the first list, even without keys. Nil: not called.
	Changed func(keys ...string)
	// Failed is called with each error of a list or watch, from Run's goroutine. Nil: not called.
	Failed func(error)
	// Relist is the time between two lists from the API server's etcd, times a factor between 1 and 1.25. Zero means one hour.
	Relist time.Duration
	// Retry is the wait after the first failed list, times a factor between 1 and 2. It doubles up to 15 s. Zero means 1 s.
	Retry time.Duration
	// MaxObjects limits the number of rows. A longer list is an error unless Compare is set. Zero means 100,000.
	MaxObjects int
	// Compare orders objects by importance. If there are more than MaxObjects, the table keeps the first in this order, calls
	// Failed with the number of omitted objects, and lists again after a quarter of Relist. Nil: more objects are an error.
	Compare func(a, b V) int
	// Rand returns jitter in [0,1). Nil means math/rand/v2.
	Rand func() float64
}

// Store is a [Table] that keeps whole objects.
type Store[T Object] = Table[T, T]

// Table holds one value for each object of a resource in memory. [Table.Run] fills it by lists and a watch. The values stay while
// the API server is unavailable. They are shared and must not be changed. A Table is safe for concurrent use.
type Table[T Object, V any] struct {
	resource Resource[T]
	options  TableOptions[T, V]
	guard    runonce.Guard

	mu      sync.Mutex // guards the fields below
	rows    rows[V]
	status  Status
	omitted omission[V]
}

// Status reports how current a table is.
type Status struct {
	// Synced is the time of the last complete list; zero: none yet, so that a missing object may exist.
	Synced time.Time
	// LastResponse is when the API server last sent a list, event or bookmark for these objects.
	LastResponse time.Time
	// Err is the error of the last request; nil after a success.
	Err error
	// Failures counts the failed requests in a row.
	Failures int
}

// Key returns the table key of an object, NAMESPACE/NAME. It is NAME if the namespace is empty.
func Key(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// NewStore returns an empty store. [Table.Run] fills it.
func NewStore[T Object](resource Resource[T], opts StoreOptions[T]) *Store[T] {
	return NewTable(resource, opts)
}

// NewTable returns an empty table. [Table.Run] fills it.
func NewTable[T Object, V any](resource Resource[T], opts TableOptions[T, V]) *Table[T, V] {
	return &Table[T, V]{resource: resource, options: opts.withDefaults()}
}

// Get returns the value of the object with this [Key]. exists is false if the table does not have the object.
func (t *Table[T, V]) Get(key string) (value V, exists bool) {
	r, ok := t.getRow(key)
	return r.value, ok
}

// List returns all values, sorted by key.
func (t *Table[T, V]) List() []V { return t.ListIn("") }

// ListIn returns the values of the objects in a namespace, sorted by key. An empty namespace means all objects.
func (t *Table[T, V]) ListIn(namespace string) []V {
	_, values := t.RowsIn(namespace)
	return values
}

// RowsIn returns the keys and values of the objects in a namespace, sorted by key. An empty namespace means all objects.
func (t *Table[T, V]) RowsIn(namespace string) (keys []string, values []V) {
	t.mu.Lock()
	defer t.mu.Unlock()
	found := t.rows.inNamespace(namespace)
	keys, values = make([]string, len(found)), make([]V, len(found))
	for i, r := range found {
		keys[i], values[i] = r.key, r.value
	}
	return keys, values
}

// Len returns the number of objects in the table.
func (t *Table[T, V]) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.rows)
}

// Synced reports whether the table has received its first complete list.
func (t *Table[T, V]) Synced() bool { return !t.Status().Synced.IsZero() }

// Status returns how current the table is.
func (t *Table[T, V]) Status() Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	status := t.status
	if status.Err == nil && t.omitted.count > 0 {
		status.Err = t.omissionError(t.omitted)
	}
	return status
}

// Run lists and watches the resource until ctx ends, and returns nil then. A second call returns an error.
func (t *Table[T, V]) Run(ctx context.Context) error {
	switch {
	case !t.resource.isUsable():
		return errNoClient
	case t.options.Transform == nil:
		return errNoTransform
	}
	if err := t.guard.Begin(); err != nil {
		return err
	}
	defer t.guard.End()
	(&reflection[T, V]{table: t}).runLoop(ctx)
	return nil
}

// errNoTransform is the error of Run if V is not T and Transform is nil.
var errNoTransform = errors.New("kubeapi: a table of other values than objects wants TableOptions.Transform")

// rowOf returns the row for object: the row of the table if it has this resource version, otherwise a fresh one.
func (t *Table[T, V]) rowOf(object T) (r row[V], fresh bool) {
	key := Key(object.GetNamespace(), object.GetName())
	if before, was := t.getRow(key); was {
		if before.version == object.GetResourceVersion() {
			// If the value is a pointer, callers of Get still get the same pointer.
			return before, false
		}
		key = before.key
	}
	return row[V]{key: key, version: strings.Clone(object.GetResourceVersion()), value: t.options.Transform(object)}, true
}

// getRow returns the row of a key, and whether it exists.
func (t *Table[T, V]) getRow(key string) (r row[V], ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at, ok := t.rows.findRow(key)
	if ok {
		r = t.rows[at]
	}
	return r, ok
}

// replaceAll replaces all rows by a complete list. It returns the keys of added, changed and removed objects.
func (t *Table[T, V]) replaceAll(list rows[V], omitted omission[V], now time.Time) (changed []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	changed = t.rows.changedKeys(list)
	t.rows, t.omitted = list, omitted
	t.status = Status{Synced: now, LastResponse: now}
	return changed
}

// putObject inserts or replaces the row of object, and returns the keys of changed rows. An unchanged resource version
// changes no row. A full table omits the object or a less important row.
func (t *Table[T, V]) putObject(object T, now time.Time) (changed []string) {
	r, fresh := t.rowOf(object)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.recordResponse(now)
	at, was := t.rows.findRow(r.key)
	switch {
	case was:
		t.rows[at] = r
	case len(t.rows) >= t.options.MaxObjects && t.options.Compare == nil:
		t.status.Err = t.tooManyError()
		return nil
	case len(t.rows) >= t.options.MaxObjects:
		return t.putFull(r)
	default:
		t.rows = slices.Insert(t.rows, at, r)
	}
	if !fresh {
		return nil
	}
	return []string{r.key}
}

// removeKey removes the row with this key. It returns the key if the table had such a row, and no key otherwise.
func (t *Table[T, V]) removeKey(key string, now time.Time) (changed []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.recordResponse(now)
	at, was := t.rows.findRow(key)
	if was {
		t.rows = slices.Delete(t.rows, at, at+1)
		changed = []string{key}
	}
	return changed
}

// recordResponse records that the API server has responded now, and clears the last error. The caller holds the lock of the
// table.
func (t *Table[T, V]) recordResponse(now time.Time) {
	t.status.LastResponse, t.status.Err, t.status.Failures = now, nil, 0
}

// recordFailure records the error of a request and calls the hook Failed.
func (t *Table[T, V]) recordFailure(err error) {
	t.mu.Lock()
	t.status.Err = err
	t.status.Failures++
	t.mu.Unlock()
	if t.options.Failed != nil {
		t.options.Failed(err)
	}
}

// recordBookmark records at now that the API server has sent a bookmark event, which means that it is reachable and the
// table is up to date.
func (t *Table[T, V]) recordBookmark(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.recordResponse(now)
}

func (t *Table[T, V]) tooManyError() error {
	return t.resource.wrapError("list", "", fmt.Errorf("%w: more than %d objects", ErrTooLarge, t.options.MaxObjects))
}
