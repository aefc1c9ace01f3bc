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

// StoreOptions say what a [Store] keeps. The zero value keeps every object of the resource whole.
type StoreOptions[T Object] = TableOptions[T, T]

// TableOptions say what a [Table] keeps.
type TableOptions[T Object, V any] struct {
	// LabelSelector and FieldSelector are the API server's. Empty means all.
	LabelSelector, FieldSelector string
	// Transform returns what is kept of an object, which it may change. Nil keeps it whole, if V is T.
	Transform func(T) V
	// Changed gets the keys that are new, changed or gone, with no lock held, from Run's goroutine. The first list is
	// always told, even an empty one. Nil is not told.
	Changed func(keys ...string)
	// Failed gets each error of a list or watch, from Run's goroutine. Nil is not told.
	Failed func(error)
	// Relist is the time from one list of the API server's store to the next, times a factor between 1 and 1.25.
	// Zero means an hour.
	Relist time.Duration
	// Retry is the wait after the first failed list, times a factor between 1 and 2; it doubles up to 15 s. Zero means 1 s.
	Retry time.Duration
	// MaxObjects bounds the table. A longer list is an error, unless there is a Compare. Zero means 100,000.
	MaxObjects int
	// Compare orders objects by importance. Of more than MaxObjects the table keeps the first, reports the number of the others as an error,
	// and lists again after a quarter of Relist. Nil means that all are needed.
	Compare func(a, b V) int
	// Rand is a source of jitter in [0,1). Nil means math/rand/v2's.
	Rand func() float64
}

// Store has the objects of a resource.
type Store[T Object] = Table[T, T]

// Table has in memory what is kept of the objects of a resource, as a list and a watch say they are. It keeps that when the
// API server is away. Values are shared: nobody changes them. It is safe for concurrent use.
type Table[T Object, V any] struct {
	resource Resource[T]
	options  TableOptions[T, V]
	guard    runonce.Guard

	mu      sync.Mutex // guards what follows
	rows    rows[V]
	status  Status
	omitted omission[V]
}

// Status says how well a store knows its objects.
type Status struct {
	// Synced is when the last list was complete; zero means never, so that what is not in the store may exist.
	Synced time.Time
	// LastResponse is when the API server last said anything of these objects, bookmarks included.
	LastResponse time.Time
	// Err is what the last request failed with; nil once one succeeds.
	Err error
	// Failures counts failed requests in a row.
	Failures int
}

// Key is an object's key: NAMESPACE/NAME, or NAME without a namespace.
func Key(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// NewStore returns an empty store that Run fills.
func NewStore[T Object](r Resource[T], o StoreOptions[T]) *Store[T] { return NewTable(r, o) }

// NewTable returns an empty table that Run fills.
func NewTable[T Object, V any](r Resource[T], o TableOptions[T, V]) *Table[T, V] {
	return &Table[T, V]{resource: r, options: o.withDefaults()}
}

// Get returns what is kept of the object of a [Key], and whether it is there.
func (t *Table[T, V]) Get(key string) (V, bool) {
	r, ok := t.getRow(key)
	return r.value, ok
}

// List returns what is kept of all objects, in the order of their keys.
func (t *Table[T, V]) List() []V { return t.ListIn("") }

// ListIn returns what is kept of the objects of a namespace, in the order of their keys; empty means all.
func (t *Table[T, V]) ListIn(namespace string) []V {
	_, values := t.RowsIn(namespace)
	return values
}

// RowsIn is [Table.ListIn] with the key of each value.
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

// Len is the number of objects.
func (t *Table[T, V]) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.rows)
}

// Synced reports whether the table has had a complete list.
func (t *Table[T, V]) Synced() bool { return !t.Status().Synced.IsZero() }

// Status says how well the table knows its objects.
func (t *Table[T, V]) Status() Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	status := t.status
	if status.Err == nil && t.omitted.count > 0 {
		status.Err = t.omissionError(t.omitted)
	}
	return status
}

// Run keeps the table up to date until ctx ends, and returns nil then. It runs once.
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

// errNoTransform is what Run answers where nothing says what to keep.
var errNoTransform = errors.New("kubeapi: a table of other values than objects wants TableOptions.Transform")

// keep makes the row of an object. One of a version that is known stays, so that whoever compares pointers sees no change.
func (t *Table[T, V]) rowOf(o T) (r row[V], fresh bool) {
	key := Key(o.GetNamespace(), o.GetName())
	if before, was := t.getRow(key); was {
		if before.version == o.GetResourceVersion() {
			return before, false
		}
		key = before.key
	}
	return row[V]{key: key, version: strings.Clone(o.GetResourceVersion()), value: t.options.Transform(o)}, true
}

// row returns the row of a key, and whether there is one.
func (t *Table[T, V]) getRow(key string) (r row[V], ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at, ok := t.rows.findRow(key)
	if ok {
		r = t.rows[at]
	}
	return r, ok
}

// replace takes a complete list without the omitted objects, and returns the keys that it changes.
func (t *Table[T, V]) replaceAll(list rows[V], omitted omission[V], now time.Time) (changed []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	changed = t.rows.changedKeys(list)
	t.rows, t.omitted = list, omitted
	t.status = Status{Synced: now, LastResponse: now}
	return changed
}

// put takes an object, and returns the keys that this changes.
func (t *Table[T, V]) putObject(o T, now time.Time) (changed []string) {
	r, fresh := t.rowOf(o)
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

// remove forgets an object, and returns the keys that this changes.
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

// heard notes that the API server spoke. The caller has the lock.
func (t *Table[T, V]) recordResponse(now time.Time) {
	t.status.LastResponse, t.status.Err, t.status.Failures = now, nil, 0
}

// failed notes an error.
func (t *Table[T, V]) recordFailure(err error) {
	t.mu.Lock()
	t.status.Err = err
	t.status.Failures++
	t.mu.Unlock()
	if t.options.Failed != nil {
		t.options.Failed(err)
	}
}

// bookmark notes that the API server has nothing new.
func (t *Table[T, V]) recordBookmark(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.recordResponse(now)
}

func (t *Table[T, V]) tooManyError() error {
	return t.resource.wrapError("list", "", fmt.Errorf("%w: more than %d objects", ErrTooLarge, t.options.MaxObjects))
}
