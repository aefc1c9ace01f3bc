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

// Times of the watches of single objects.
const (
	syncWait   = 2 * time.Second        // that a read waits for the first list of a new watch
	syncRetry  = 200 * time.Millisecond // after a first list that fails, as one before the API server knows of the pod
	idleAfter  = 5 * time.Minute        // without a read; volumes that are shown are read every 90 s at least
	idleCheck  = time.Minute
	maxWatched = 5000 // objects of a kind, at a time; more are read by plain requests
)

// watched has objects of a kind that are watched one by one, by name, as an API server allows it to a node. A read begins the
// watch; it ends when nothing reads the object for 5 minutes or no pod refers to it, and where the object is immutable.
type watched[T kubeapi.Object] struct {
	client    *kubeapi.Client
	plain     *kubeapi.Client // with a budget of its own, for objects that are not watched
	kind      kubeapi.Kind[T]
	immutable func(T) bool
	changed   func(namespace, name string) // called with no lock held
	wake      chan struct{}                // a watch is to begin

	mu      sync.Mutex // guards what follows
	running bool
	entries map[string]*entry[T]
	known   map[string]reference // what pods refer to; nil: not known yet
	absent  map[string]absence
	budgets map[string]*budget // of plain requests, by pod
}

// entry is the watch of one object.
type entry[T kubeapi.Object] struct {
	namespace, name string
	store           *kubeapi.Store[T]
	ready           chan struct{} // closed with the first list
	used            time.Time     // guarded by watched.mu, as are the others
	stop            context.CancelFunc
	pinned          bool // a pod refers to it
}

func newWatched[T kubeapi.Object](c, plain *kubeapi.Client, k kubeapi.Kind[T], immutable func(T) bool, changed func(namespace, name string)) *watched[T] {
	return &watched[T]{
		client: c, plain: plain, kind: k, immutable: immutable, changed: changed, wake: make(chan struct{}, 1),
		entries: map[string]*entry[T]{}, budgets: map[string]*budget{},
	}
}

// errNotRunning is why nothing is watched.
var errNotRunning = errors.New("Objects.Run does not run: call it before pods get volumes")

// get returns an object, and whether it exists. While the API server is away that is as it was.
func (w *watched[T]) get(ctx context.Context, namespace, name string) (o T, exists bool, err error) {
	e, err := w.use(namespace, name)
	switch {
	case err != nil:
		return o, false, err
	case e == nil:
		return w.read(ctx, namespace, name)
	}
	timer := time.NewTimer(syncWait)
	defer timer.Stop()
	select {
	case <-e.ready:
		o, exists = e.store.Get(kubeapi.Key(namespace, name))
		return o, exists, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = fmt.Errorf("no answer within %s", syncWait)
	}
	if cause := e.store.Status().Err; cause != nil {
		return o, false, cause
	}
	return o, false, err
}

// peek returns an object that is known to be up to date without asking.
func (w *watched[T]) peek(namespace, name string) (o T, ok bool) {
	key := kubeapi.Key(namespace, name)
	w.mu.Lock()
	e := w.entries[key]
	w.mu.Unlock()
	if e == nil {
		return o, false
	}
	if s := e.store.Status(); s.Synced.IsZero() || s.Err != nil {
		return o, false
	}
	return e.store.Get(key)
}

// use finds the watch of an object, or makes it. It returns nil for an object that is not to be watched.
func (w *watched[T]) use(namespace, name string) (*entry[T], error) {
	key := kubeapi.Key(namespace, name)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.running {
		return nil, errNotRunning
	}
	e := w.entries[key]
	if e == nil {
		if !w.mayWatch(namespace, key) {
			return nil, nil
		}
		e = w.newEntry(namespace, name)
		w.entries[key] = e
		sleep.Wake(w.wake)
	}
	e.used = time.Now()
	return e, nil
}

func (w *watched[T]) newEntry(namespace, name string) *entry[T] {
	e := &entry[T]{namespace: namespace, name: name, ready: make(chan struct{})}
	ready := sync.OnceFunc(func() { close(e.ready) })
	e.store = kubeapi.NewStore(kubeapi.In(w.client, w.kind, namespace), kubeapi.StoreOptions[T]{
		FieldSelector: "metadata.name=" + name, Retry: syncRetry, MaxObjects: 1,
		Changed: func(...string) {
			ready()
			if o, ok := e.store.Get(kubeapi.Key(namespace, name)); ok && w.immutable(o) {
				w.end(e)
			}
			w.changed(namespace, name)
		},
	})
	return e
}

// end ends the watch of an object, whose store keeps it.
func (w *watched[T]) end(e *entry[T]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.stop != nil {
		e.stop()
	}
}

// run begins and ends watches until ctx ends, and returns when all of them have.
func (w *watched[T]) run(ctx context.Context) error {
	w.setRunning(true)
	defer w.setRunning(false)
	var group sync.WaitGroup
	defer group.Wait()
	ticker := time.NewTicker(idleCheck)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.wake:
			for _, begin := range w.begin(ctx) {
				group.Go(begin)
			}
		case now := <-ticker.C:
			w.drop(now, nil)
		}
	}
}

func (w *watched[T]) setRunning(running bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running = running
}

// begin returns what runs the new watches.
func (w *watched[T]) begin(ctx context.Context) (all []func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.entries {
		if e.stop != nil {
			continue
		}
		var run context.Context
		run, e.stop = context.WithCancel(ctx)
		all = append(all, func() { _ = e.store.Run(run) }) // it ends with its context
	}
	return all
}

// drop ends the watches that nothing has read for long, and those of objects that no pod refers to any more. Pods are told of
// after their volumes are, so that what has been read just now stays.
func (w *watched[T]) drop(now time.Time, pinned map[string]reference) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.retain(now, pinned)
	for key, e := range w.entries {
		was, beyond := e.pinned, false
		if pinned != nil {
			var r reference
			r, e.pinned = pinned[key]
			beyond = e.pinned && !r.share
		}
		if now.Sub(e.used) < idleAfter && (!was || e.pinned) && !beyond {
			continue
		}
		if e.stop != nil {
			e.stop()
			delete(w.entries, key)
		}
	}
}

// len is the number of objects that are watched, or were before they turned out to be immutable.
func (w *watched[T]) len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.entries)
}

func immutableConfigMap(o *corev1.ConfigMap) bool { return o.Immutable != nil && *o.Immutable }

func immutableSecret(o *corev1.Secret) bool { return o.Immutable != nil && *o.Immutable }
