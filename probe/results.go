// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"maps"
	"sync"
)

// resultBoard holds the values and the status of a Set, so that any goroutine can read the results of Run's loop.
type resultBoard struct {
	mu     sync.RWMutex // guards the fields below
	values map[Key]Value
	state  Status
}

func (b *resultBoard) setValue(key Key, value Value) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.values[key] = value
}

func (b *resultBoard) removeValue(key Key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.values, key)
}

func (b *resultBoard) getValue(key Key) (Value, bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	v, ok := b.values[key]
	return v, ok
}

func (b *resultBoard) copyValues() map[Key]Value {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return maps.Clone(b.values)
}

func (b *resultBoard) setStatus(s Status) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.state = s
}

func (b *resultBoard) getStatus() Status {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.state
}
