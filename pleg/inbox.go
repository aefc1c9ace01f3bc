// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

// inbox collects requests for the loop of Run. A request never blocks and is never lost; repeated requests before the loop reads
// them count as one.
type inbox struct {
	wake chan struct{} // capacity 1; a value makes the loop read the inbox

	mu      sync.Mutex // guards pending
	pending requests
}

// requests are the pending requests to the loop: a full relist, relists of single pods, and runtime events.
type requests struct {
	full      bool                       // start a full relist
	pods      map[string]bool            // pods to relist, by UID; true: also inspect all objects
	events    map[runtimeEvent]time.Time // runtime events, with the newest time of each
	streaming bool                       // the event stream works
}

// runtimeEvent has the fields of a CRI event that the loop uses. It is a map key, so that repeated events count as one.
type runtimeEvent struct {
	uid, id string
	event   cri.EventType
}

// request changes the pending requests by the function change, and wakes the loop of Run.
func (b *inbox) request(change func(*requests)) {
	b.mu.Lock()
	change(&b.pending)
	b.mu.Unlock()
	b.wakeLoop()
}

func (b *inbox) wakeLoop() {
	sleep.Wake(b.wake)
}

// takeRequests removes the pending requests from the inbox and returns them.
func (b *inbox) takeRequests() requests {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.pending
	b.pending = requests{streaming: r.streaming}
	return r
}

// isStreaming reports whether the event stream works.
func (b *inbox) isStreaming() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pending.streaming
}

func (b *inbox) requestRelist(uid string, reinspect bool) {
	if uid == "" { // objects without a pod UID are ignored everywhere
		return
	}
	b.request(func(r *requests) {
		if r.pods == nil {
			r.pods = make(map[string]bool)
		}
		r.pods[uid] = r.pods[uid] || reinspect
	})
}

func (r *requests) addHint(event runtimeEvent, eventTime time.Time) {
	if r.events == nil {
		r.events = make(map[runtimeEvent]time.Time)
	}
	if last, ok := r.events[event]; !ok || eventTime.After(last) {
		r.events[event] = eventTime
	}
}
