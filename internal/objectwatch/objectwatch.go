// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package objectwatch distributes changes of API objects to registered functions. It queues nothing: a function does not get
// changes from before its registration.
package objectwatch

import (
	"context"
	"sync"
)

// Watchers holds the registered functions. The zero value is ready. Its methods may be called from any goroutine, also by the
// functions.
type Watchers struct {
	mu     sync.Mutex // guards the fields below
	lastID int
	funcs  map[int]func(kind, namespace, name string)
}

// Notify calls all functions registered by [Watchers.Watch]. It calls them in the goroutine of the caller and holds no lock.
func (l *Watchers) Notify(kind, namespace, name string) {
	l.mu.Lock()
	all := make([]func(kind, namespace, name string), 0, len(l.funcs))
	for _, fn := range l.funcs {
		all = append(all, fn)
	}
	l.mu.Unlock()
	for _, fn := range all {
		fn(kind, namespace, name)
	}
}

// Watch registers the function changed, which [Watchers.Notify] calls for each changed object. It blocks until ctx ends,
// and then returns nil.
func (l *Watchers) Watch(ctx context.Context, changed func(kind, namespace, name string)) error {
	defer l.addFunc(changed)()
	<-ctx.Done()
	return nil
}

// addFunc registers fn until remove is called.
func (l *Watchers) addFunc(fn func(kind, namespace, name string)) (remove func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.funcs == nil {
		l.funcs = map[int]func(kind, namespace, name string){}
	}
	l.lastID++
	id := l.lastID
	l.funcs[id] = fn
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.funcs, id)
	}
}
