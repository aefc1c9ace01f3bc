// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package critest

import (
	"context"
	"slices"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

// eventStream is one StreamEvents call. Runtime.mu guards it.
type eventStream struct {
	queue  []cri.Event
	broken error         // error that ends the stream after the queued events; nil while it works
	wake   chan struct{} // capacity 1; has an element after queue or broken has changed
}

// StreamEvents calls fn for each later change of a sandbox or container, in order and without loss. It returns when ctx
// ends, fn returns an error, or [Runtime.BreakStreams] is called.
func (r *Runtime) StreamEvents(ctx context.Context, fn func(cri.Event) error) (err error) {
	call := r.recordCall(Call{Op: "GetContainerEvents"})
	defer r.recordResult(call, &err)
	s := &eventStream{wake: make(chan struct{}, 1)}
	r.mu.Lock()
	r.streams = append(r.streams, s)
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.streams = slices.DeleteFunc(r.streams, func(o *eventStream) bool { return o == s })
	}()
	for {
		r.mu.Lock()
		events, broken := s.queue, s.broken
		s.queue = nil
		r.mu.Unlock()
		for _, e := range events {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := fn(e); err != nil {
				return err
			}
		}
		if broken != nil {
			return broken
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.wake:
		}
	}
}

// BreakStreams ends all open event streams with err, as if the runtime had crashed. New streams can be opened afterwards.
func (r *Runtime) BreakStreams(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.streams {
		s.broken = err
		s.wakeReader()
	}
}

// publishEvent queues an event about a sandbox or container for all open streams.
func (r *Runtime) publishEvent(t cri.EventType, id string, pod cri.PodIdentity) {
	// r.mu is held, so that events have the order of the changes
	if len(r.streams) == 0 {
		return
	}
	e := cri.Event{Type: t, ID: id, Time: time.Now(), Pod: r.podObjects(pod)}
	for _, s := range r.streams {
		s.queue = append(s.queue, e)
		s.wakeReader()
	}
}

func (s *eventStream) wakeReader() {
	sleep.Wake(s.wake)
}
