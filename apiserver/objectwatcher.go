// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/kubeapi"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

// Times and limits of the watches of single objects.
const (
	firstListWait    = 2 * time.Second        // how long a read waits for the first list of a new watch
	firstListRetry   = 200 * time.Millisecond // delay after a failed first list: access may be permitted a moment later
	watchIdleTimeout = 5 * time.Minute        // a watch stops after this time without a read; mounted volumes are read at least every 90 s
	idleCheckPeriod  = time.Minute
	maxWatches       = 5000 // watches per kind; further objects are read by GET requests
)

// objectWatcher watches config maps or secrets one by one, by name, because the API server permits a node no other watch of them.
// The first read of an object starts its watch. The watch ends after 5 minutes without a read, when no pod refers to the object,
// or when the object is immutable.
type objectWatcher[T kubeapi.Object] struct {
	client       *kubeapi.Client
	directClient *kubeapi.Client // with its own rate limit, for objects that are not watched
	kind         kubeapi.Kind[T]
	isImmutable  func(T) bool
	onChange     func(namespace, name string) // called with no lock held
	wake         chan struct{}                // has a value when a watch must be started

	mu         sync.Mutex // guards the fields below
	running    bool
	watches    map[string]*objectWatch[T]
	references map[string]reference   // objects that listed pods refer to; nil before the first call of Retain
	absences   map[string]absence     // objects that do not exist
	budgets    map[string]*readBudget // of direct reads, by pod
}

// objectWatch is the watch of one object.
type objectWatch[T kubeapi.Object] struct {
	namespace, name string
	store           *kubeapi.Store[T]
	ready           chan struct{} // closed after the first list
	lastRead        time.Time     // guarded by objectWatcher.mu, as the fields below
	cancel          context.CancelFunc
	referenced      bool // a listed pod refers to it
}

func newObjectWatcher[T kubeapi.Object](client, direct *kubeapi.Client, kind kubeapi.Kind[T], immutable func(T) bool, changed func(namespace, name string)) *objectWatcher[T] {
	return &objectWatcher[T]{
		client: client, directClient: direct, kind: kind, isImmutable: immutable, onChange: changed, wake: make(chan struct{}, 1),
		watches: map[string]*objectWatch[T]{}, budgets: map[string]*readBudget{},
	}
}

// errNotRunning reports that Objects.Run is not running, so that no object can be watched.
var errNotRunning = errors.New("Objects.Run does not run: call it before pods get volumes")

// getObject returns an object from its watch, which the first call starts, or by a GET request if canWatch forbids a watch.
func (w *objectWatcher[T]) getObject(ctx context.Context, namespace, name string) (object T, exists bool, err error) {
	e, err := w.ensureWatch(namespace, name)
	switch {
	case err != nil:
		return object, false, err
	case e == nil:
		return w.readDirect(ctx, namespace, name)
	}
	timer := time.NewTimer(firstListWait)
	defer timer.Stop()
	select {
	case <-e.ready:
		object, exists = e.store.Get(kubeapi.Key(namespace, name)) // while the API server is unavailable, the last version
		return object, exists, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = fmt.Errorf("no response within %s", firstListWait)
	}
	if cause := e.store.Status().Err; cause != nil {
		return object, false, cause
	}
	return object, false, err
}

// getIfCurrent returns a watched object without a request, if its watch is up to date.
func (w *objectWatcher[T]) getIfCurrent(namespace, name string) (object T, ok bool) {
	key := kubeapi.Key(namespace, name)
	w.mu.Lock()
	e := w.watches[key]
	w.mu.Unlock()
	if e == nil {
		return object, false
	}
	if s := e.store.Status(); s.Synced.IsZero() || s.Err != nil {
		return object, false
	}
	return e.store.Get(key)
}

// ensureWatch returns the watch of an object, which it creates if necessary, or nil if canWatch forbids a watch.
func (w *objectWatcher[T]) ensureWatch(namespace, name string) (*objectWatch[T], error) {
	key := kubeapi.Key(namespace, name)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.running {
		return nil, errNotRunning
	}
	e := w.watches[key]
	if e == nil {
		if !w.canWatch(namespace, key) {
			return nil, nil
		}
		e = w.newWatch(namespace, name)
		w.watches[key] = e
		sleep.Wake(w.wake)
	}
	e.lastRead = time.Now()
	return e, nil
}

// newWatch returns a watch of a single config map or secret. It does not start the watch; runWatches does.
func (w *objectWatcher[T]) newWatch(namespace, name string) *objectWatch[T] {
	e := &objectWatch[T]{namespace: namespace, name: name, ready: make(chan struct{})}
	ready := sync.OnceFunc(func() { close(e.ready) })
	e.store = kubeapi.NewStore(kubeapi.In(w.client, w.kind, namespace), kubeapi.StoreOptions[T]{
		FieldSelector: "metadata.name=" + name, Retry: firstListRetry, MaxObjects: 1,
		Changed: func(...string) {
			ready()
			if o, ok := e.store.Get(kubeapi.Key(namespace, name)); ok && w.isImmutable(o) {
				w.stopWatch(e)
			}
			w.onChange(namespace, name)
		},
	})
	return e
}

// stopWatch stops a watch because its object is immutable. The object can still be read from its store.
func (w *objectWatcher[T]) stopWatch(watch *objectWatch[T]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if watch.cancel != nil {
		watch.cancel()
	}
}

// runWatches starts new watches and stops unused watches until ctx ends. It returns when all watches have stopped.
func (w *objectWatcher[T]) runWatches(ctx context.Context) error {
	w.setRunning(true)
	defer w.setRunning(false)
	var group sync.WaitGroup
	defer group.Wait()
	ticker := time.NewTicker(idleCheckPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.wake:
			for _, begin := range w.prepareRuns(ctx) {
				group.Go(begin)
			}
		case now := <-ticker.C:
			w.dropUnused(now, nil)
		}
	}
}

func (w *objectWatcher[T]) setRunning(running bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running = running
}

// prepareRuns returns one function for each new watch, which the caller runs in a goroutine until ctx ends.
func (w *objectWatcher[T]) prepareRuns(ctx context.Context) (all []func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.watches {
		if e.cancel != nil {
			continue
		}
		var run context.Context
		run, e.cancel = context.WithCancel(ctx)
		all = append(all, func() { _ = e.store.Run(run) }) // Run returns nil when its context ends
	}
	return all
}

// dropUnused stops the watches of objects that were not read for 5 minutes, or that the listed pods no longer refer to.
func (w *objectWatcher[T]) dropUnused(now time.Time, referenced map[string]reference) {
	w.mu.Lock()
	defer w.mu.Unlock()
	// nil means that the references are unchanged
	w.setReferences(now, referenced)
	for key, e := range w.watches {
		wasReferenced, overLimit := e.referenced, false
		if referenced != nil {
			var r reference
			r, e.referenced = referenced[key]
			overLimit = e.referenced && !r.watchable
		}
		// An object that no listed pod has ever referred to stays watched: a volume may read it before Retain lists the pod.
		if now.Sub(e.lastRead) < watchIdleTimeout && (!wasReferenced || e.referenced) && !overLimit {
			continue
		}
		if e.cancel != nil {
			e.cancel()
			delete(w.watches, key)
		}
	}
}

// watchCount returns the number of objects with a watch. It includes immutable objects, whose watches have stopped.
func (w *objectWatcher[T]) watchCount() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.watches)
}

func isImmutableConfigMap(configMap *corev1.ConfigMap) bool {
	return configMap.Immutable != nil && *configMap.Immutable
}

func isImmutableSecret(secret *corev1.Secret) bool {
	return secret.Immutable != nil && *secret.Immutable
}
