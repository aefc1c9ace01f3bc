// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package objectwatch is the list of functions that are told which objects of a cluster have changed. It does not queue
// anything: what happens while a function is not on the list is not told to it.
package objectwatch

import (
	"context"
	"sync"
)

// Watchers is the functions. The zero value has none. Its methods may be called from any goroutine, also by the functions.
type Watchers struct {
	mu     sync.Mutex // guards what follows
	lastID int
	funcs  map[int]func(kind, namespace, name string)
}

// Notify calls every function, with no lock held, from the goroutine of the caller.
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

// Watch has a function on the list until ctx ends, with whose end it returns nil.
func (l *Watchers) Watch(ctx context.Context, changed func(kind, namespace, name string)) error {
	defer l.addFunc(changed)()
	<-ctx.Done()
	return nil
}

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
