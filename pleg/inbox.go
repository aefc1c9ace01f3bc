// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

// inbox collects what the loop is asked to do, so that asking never blocks and nothing asked is lost: a request
// made many times before the loop gets to it is one request.
type inbox struct {
	wake chan struct{} // capacity 1; a value means that the loop should look

	mu      sync.Mutex // guards pending
	pending requests
}

// requests is the content of an inbox.
type requests struct {
	full      bool                       // list everything
	pods      map[string]bool            // by UID: list this pod, and inspect it whole where true
	events    map[runtimeEvent]time.Time // what the runtime says has happened, and when it did last
	streaming bool                       // the event stream can be relied on
}

// hint is an event of the runtime, less what is not looked at.
type runtimeEvent struct {
	uid, id string
	event   cri.EventType
}

// ask changes the pending requests and wakes the loop.
func (b *inbox) request(change func(*requests)) {
	b.mu.Lock()
	change(&b.pending)
	b.mu.Unlock()
	b.wakeLoop()
}

func (b *inbox) wakeLoop() {
	sleep.Wake(b.wake)
}

// take empties the inbox.
func (b *inbox) takeRequests() requests {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.pending
	b.pending = requests{streaming: r.streaming}
	return r
}

// streaming reports whether the event stream can be relied on.
func (b *inbox) isStreaming() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pending.streaming
}

func (b *inbox) requestRelist(uid string, reinspect bool) {
	if uid == "" { // what belongs to no pod is left out everywhere
		return
	}
	b.request(func(r *requests) {
		if r.pods == nil {
			r.pods = make(map[string]bool)
		}
		r.pods[uid] = r.pods[uid] || reinspect
	})
}

func (r *requests) addHint(h runtimeEvent, at time.Time) {
	if r.events == nil {
		r.events = make(map[runtimeEvent]time.Time)
	}
	if last, ok := r.events[h]; !ok || at.After(last) {
		r.events[h] = at
	}
}
