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

// stream is one StreamEvents call. The runtime's lock guards it.
type stream struct {
	queue  []cri.Event
	broken error         // why the stream ends after what is queued
	wake   chan struct{} // capacity 1: there is something new in the above
}

// StreamEvents reports every change of a sandbox or container from now on. Events come in the order in which they
// happened and none is lost.
func (r *Runtime) StreamEvents(ctx context.Context, fn func(cri.Event) error) (err error) {
	call := r.begin(Call{Op: "GetContainerEvents"})
	defer r.end(call, &err)
	s := &stream{wake: make(chan struct{}, 1)}
	r.mu.Lock()
	r.streams = append(r.streams, s)
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.streams = slices.DeleteFunc(r.streams, func(o *stream) bool { return o == s })
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

// BreakStreams ends all event streams with an error, as a runtime that goes down does. Streams begun later work.
func (r *Runtime) BreakStreams(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.streams {
		s.broken = err
		s.notify()
	}
}

// publish hands an event to all streams. r.mu is held, so that the order of events is the order of changes.
func (r *Runtime) publish(t cri.EventType, id string, pod cri.PodIdentity) {
	if len(r.streams) == 0 {
		return
	}
	e := cri.Event{Type: t, ID: id, Time: time.Now(), Pod: r.pod(pod)}
	for _, s := range r.streams {
		s.queue = append(s.queue, e)
		s.notify()
	}
}

func (s *stream) notify() {
	sleep.Wake(s.wake)
}
