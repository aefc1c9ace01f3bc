// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import "sync"

// inbox holds what callers ask of Run's loop. Asking never waits.
type inbox struct {
	wake chan struct{} // of capacity 1: full while there is something to take

	mu      sync.Mutex // guards pending
	pending requests
}

// requests are what has been asked for since the loop last looked.
type requests struct {
	synced   bool // targets replace those before
	targets  []Target
	triggers map[Key]struct{}
}

func (b *inbox) ask(f func(*requests)) {
	b.mu.Lock()
	f(&b.pending)
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

func (b *inbox) take() requests {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.pending
	b.pending = requests{}
	return r
}
