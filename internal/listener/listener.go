// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package listener has a list of functions that a component calls when pods have changed. It does not queue calls: a function
// that is added later is not called for earlier changes.
package listener

import (
	"slices"
	"sync"
)

// List is a list of functions, called in the order in which they were added. The zero value is ready for use. Its methods may be
// called from any goroutine, including by the functions themselves.
type List struct {
	mu  sync.Mutex
	fns []func(uids ...string) // replaced by a copy at each change
}

// Add registers a function, which each later [List.Call] calls. It panics if fn is nil.
func (l *List) Add(fn func(uids ...string)) {
	if fn == nil {
		panic("Notify: nil function")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fns = append(slices.Clip(l.fns), fn)
}

// IsEmpty reports whether Add was never called.
func (l *List) IsEmpty() bool { return len(l.functions()) == 0 }

// Call calls every registered function, one after another, with the UIDs of the changed pods. It holds no lock during the
// calls.
func (l *List) Call(uids ...string) {
	for _, fn := range l.functions() {
		fn(uids...)
	}
}

func (l *List) functions() []func(uids ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fns
}
