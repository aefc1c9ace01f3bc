// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"io"
	"sync"

	"github.com/seed81659283/nodeagent/internal/sleep"
)

// inbox collects requests for Run's loop. A request never blocks.
type inbox struct {
	wake chan struct{} // capacity 1; full while requests are pending

	mu      sync.Mutex // guards pending
	pending requests
}

// requests are the requests since the loop last read them. The loop applies targets if replaceAll is set, then pods, then
// triggers.
type requests struct {
	replaceAll bool // targets replace all previous targets
	targets    []Target
	pods       map[string][]Target // by UID; replace the previous targets of the pod
	triggers   map[Key]struct{}
	// dropped are probers of targets that were replaced before the loop read them.
	dropped map[io.Closer]struct{}
}

// setTargets replaces the targets of all pods that the loop has not read yet.
func (r *requests) setTargets(targets []Target) {
	r.dropProbers(r.targets)
	for _, of := range r.pods {
		r.dropProbers(of)
	}
	r.replaceAll, r.targets, r.pods = true, targets, nil
}

// setPodTargets replaces the targets of one pod that the loop has not read yet.
func (r *requests) setPodTargets(uid string, targets []Target) {
	r.dropProbers(r.pods[uid])
	if r.pods == nil {
		r.pods = make(map[string][]Target)
	}
	r.pods[uid] = targets
}

// dropProbers records that the loop must close the probers of these targets. The targets were replaced before the loop has
// read them.
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

// addTrigger records for the loop that the probe with this key must run now.
func (r *requests) addTrigger(key Key) {
	if r.triggers == nil {
		r.triggers = make(map[Key]struct{})
	}
	r.triggers[key] = struct{}{}
}

func (b *inbox) request(change func(*requests)) {
	b.mu.Lock()
	change(&b.pending)
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
