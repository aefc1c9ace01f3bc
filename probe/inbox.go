// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"io"
	"sync"

	"github.com/seed81659283/nodeagent/internal/sleep"
)

// inbox holds what callers ask of Run's loop. Asking never waits.
type inbox struct {
	wake chan struct{} // of capacity 1: full while there is something to take

	mu      sync.Mutex // guards pending
	pending requests
}

// requests are what has been asked for since the loop last looked: all that is to be probed, if synced, then pods one
// by one, then triggers.
type requests struct {
	synced   bool // targets replace those before
	targets  []Target
	pods     map[string][]Target // by UID, in place of what was said of them before
	triggers map[Key]struct{}
	// dropped are probers that were handed over and then taken back before the loop has seen them.
	dropped map[io.Closer]struct{}
}

// sync replaces all that has been said.
func (r *requests) sync(targets []Target) {
	r.drop(r.targets)
	for _, of := range r.pods {
		r.drop(of)
	}
	r.synced, r.targets, r.pods = true, targets, nil
}

// syncPod replaces what has been said of a pod.
func (r *requests) syncPod(uid string, targets []Target) {
	r.drop(r.pods[uid])
	if r.pods == nil {
		r.pods = make(map[string][]Target)
	}
	r.pods[uid] = targets
}

// drop remembers the probers of targets that are no longer wanted.
func (r *requests) drop(targets []Target) {
	for i := range targets {
		c := closerOf(targets[i].Prober)
		if c == nil {
			continue
		}
		if r.dropped == nil {
			r.dropped = make(map[io.Closer]struct{})
		}
		r.dropped[c] = struct{}{}
	}
}

// trigger asks for a probe now.
func (r *requests) trigger(k Key) {
	if r.triggers == nil {
		r.triggers = make(map[Key]struct{})
	}
	r.triggers[k] = struct{}{}
}

func (b *inbox) ask(f func(*requests)) {
	b.mu.Lock()
	f(&b.pending)
	b.mu.Unlock()
	sleep.Wake(b.wake)
}

func (b *inbox) take() requests {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.pending
	b.pending = requests{}
	return r
}
