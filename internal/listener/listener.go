// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package listener is the list of functions that a component calls when there is something new about pods. It does not
// queue anything: what a function is called with is not called again.
package listener

import (
	"slices"
	"sync"
)

// List is the functions that are called, in the order in which they were added. The zero value is ready for use. Its
// methods may be called from any goroutine, also by the functions themselves.
type List struct {
	mu  sync.Mutex
	fns []func(uids ...string) // replaced as a whole
}

// Add adds a function, which every later Call calls. It panics if fn is nil.
func (l *List) Add(fn func(uids ...string)) {
	if fn == nil {
		panic("Notify: nil function")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fns = append(slices.Clip(l.fns), fn)
}

// Empty reports whether nobody listens.
func (l *List) Empty() bool { return len(l.all()) == 0 }

// Call calls every function with the UIDs of the pods, one after the other and with no lock held.
func (l *List) Call(uids ...string) {
	for _, fn := range l.all() {
		fn(uids...)
	}
}

func (l *List) all() []func(uids ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fns
}
