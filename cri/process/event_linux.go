// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/process/internal/shim"
	"github.com/seed81659283/nodeagent/internal/backoff"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

// stream is one call of StreamEvents.
type stream struct {
	queue []queued      // guarded by Runtime.mu
	ready chan struct{} // holds a token when there is something in the queue, or the runtime was closed
}

// queued is an event that waits for its stream, with the container that started, if one did.
type queued struct {
	event   cri.Event
	started *container
}

func (s *stream) wake() {
	sleep.Wake(s.ready)
}

// emit queues an event for every stream, with the sandboxes and containers that the pod has now. The caller holds mu.
func (r *Runtime) emit(typ cri.EventType, id string, pod cri.PodIdentity, started *container) {
	if len(r.streams) == 0 {
		return
	}
	now := time.Now()
	event := cri.Event{Type: typ, ID: id, Time: now, Pod: cri.Pod{PodIdentity: pod, Time: now}}
	for _, s := range r.sandboxes {
		if s.Pod.UID == pod.UID {
			event.Pod.Sandboxes = append(event.Pod.Sandboxes, s.Sandbox)
		}
	}
	for _, c := range r.containers {
		if c.PodUID == pod.UID {
			event.Pod.Containers = append(event.Pod.Containers, c.Container)
		}
	}
	for s := range r.streams {
		s.queue = append(s.queue, queued{event, started})
		s.wake()
	}
}

// StreamEvents calls fn for every event from now on. The end of a container is learned from the kernel when it
// happens, also of containers that an earlier agent started. Event.Pod is complete.
func (r *Runtime) StreamEvents(ctx context.Context, fn func(cri.Event) error) error {
	return fail("GetContainerEvents", "", r.streamEvents(ctx, fn))
}

func (r *Runtime) streamEvents(ctx context.Context, fn func(cri.Event) error) error {
	s := &stream{ready: make(chan struct{}, 1)}
	running, err := r.attach(s)
	if err != nil {
		return err
	}
	defer r.detach(s)
	var watchers sync.WaitGroup
	defer watchers.Wait()
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	watch := func(c *container) { watchers.Go(func() { r.watch(watching, c) }) }
	for _, c := range running {
		watch(c)
	}
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.ready:
		}
		batch, err := r.take(s)
		if err != nil {
			return err
		}
		for _, q := range batch {
			if q.started != nil {
				watch(q.started)
			}
			if err := fn(q.event); err != nil {
				return err
			}
		}
	}
}

// watch waits for the end of a container and makes it known, or what becomes of one in state unknown.
func (r *Runtime) watch(ctx context.Context, c *container) {
	retry := backoff.Policy{First: firstPause, Max: examinePause}
	for pause := retry.First; ; pause = retry.Next(pause) {
		handle, unknown := r.watched(c)
		if handle == nil && !unknown {
			return // known already
		}
		if handle != nil {
			if err := handle.Wait(ctx); err != nil && ctx.Err() == nil {
				r.logAbout(c).Error("cannot wait for a container", "error", err)
			}
		}
		if ctx.Err() != nil || r.settled(c, unknown) || sleep.For(ctx, pause) != nil {
			return
		}
	}
}

// watched returns the shim of a container that runs, or says that its state is unknown.
func (r *Runtime) watched(c *container) (handle *shim.Handle, unknown bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return c.shim, c.State == cri.ContainerUnknown && !c.gone
}

// settled settles a container and reports whether there is nothing more to wait for. One that was in state unknown and
// runs is watched by whoever gets the event of that.
func (r *Runtime) settled(c *container, unknown bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.settle(c) != nil {
		return r.closed
	}
	return c.State != cri.ContainerUnknown && (unknown || c.shim == nil)
}

// attach adds a stream and returns the containers that run or may run.
func (r *Runtime) attach(s *stream) (running []*container, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errClosed
	}
	r.streams[s] = true
	for _, c := range r.containers {
		if c.shim != nil || c.State == cri.ContainerUnknown {
			running = append(running, c)
		}
	}
	return running, nil
}

func (r *Runtime) detach(s *stream) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.streams, s)
}

// take empties the queue of a stream.
func (r *Runtime) take(s *stream) ([]queued, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errClosed
	}
	batch := s.queue
	s.queue = nil
	return batch, nil
}
