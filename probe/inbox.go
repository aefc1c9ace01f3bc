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
	replaceAll bool // targets replace those before
	targets    []Target
	pods       map[string][]Target // by UID, in place of what was said of them before
	triggers   map[Key]struct{}
	// dropped are probers that were handed over and then taken back before the loop has seen them.
	dropped map[io.Closer]struct{}
}

// sync replaces all that has been said.
func (r *requests) setTargets(targets []Target) {
	r.dropProbers(r.targets)
	for _, of := range r.pods {
		r.dropProbers(of)
	}
	r.replaceAll, r.targets, r.pods = true, targets, nil
}

// syncPod replaces what has been said of a pod.
func (r *requests) setPodTargets(uid string, targets []Target) {
	r.dropProbers(r.pods[uid])
	if r.pods == nil {
		r.pods = make(map[string][]Target)
	}
	r.pods[uid] = targets
}

// drop remembers the probers of targets that are no longer wanted.
func (r *requests) dropProbers(targets []Target) {
	for i := range targets {
		c := proberCloser(targets[i].Prober)
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
func (r *requests) addTrigger(k Key) {
	if r.triggers == nil {
		r.triggers = make(map[Key]struct{})
	}
	r.triggers[k] = struct{}{}
}

func (b *inbox) request(f func(*requests)) {
	b.mu.Lock()
	f(&b.pending)
	b.mu.Unlock()
	sleep.Wake(b.wake)
}

func (b *inbox) takeRequests() requests {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.pending
	b.pending = requests{}
	return r
}
