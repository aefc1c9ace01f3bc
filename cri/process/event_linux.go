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

// eventStream is one call of StreamEvents.
type eventStream struct {
	queue []queuedEvent // guarded by Runtime.mu
	ready chan struct{} // capacity 1; has a token if the queue is not empty or the runtime was closed
}

// queuedEvent is an event in the queue of a stream. If the event reports the start of a container, started is the container.
type queuedEvent struct {
	event   cri.Event
	started *container
}

func (s *eventStream) wakeReader() {
	sleep.Wake(s.ready)
}

// emitEvent queues an event about a sandbox or container for every open stream. The caller holds mu.
func (r *Runtime) emitEvent(typ cri.EventType, id string, pod cri.PodIdentity, started *container) {
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
		s.queue = append(s.queue, queuedEvent{event, started}) // a stream watches the started container, to report its exit
		s.wakeReader()
	}
}

// StreamEvents calls fn for every event until ctx ends, fn returns an error or the runtime is closed. An event contains all
// sandboxes and containers of its pod. Exits are reported at once, also of containers that a previous agent process started.
func (r *Runtime) StreamEvents(ctx context.Context, fn func(cri.Event) error) error {
	return wrapError("GetContainerEvents", "", r.streamEvents(ctx, fn))
}

func (r *Runtime) streamEvents(ctx context.Context, fn func(cri.Event) error) error {
	s := &eventStream{ready: make(chan struct{}, 1)}
	running, err := r.addStream(s)
	if err != nil {
		return err
	}
	defer r.removeStream(s)
	var watchers sync.WaitGroup
	defer watchers.Wait()
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	watch := func(c *container) { watchers.Go(func() { r.watchContainer(watching, c) }) }
	for _, c := range running {
		watch(c)
	}
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.ready:
		}
		batch, err := r.takeEvents(s)
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

// watchContainer waits until a container has exited, and records the exit.
func (r *Runtime) watchContainer(ctx context.Context, ctr *container) {
	retry := backoff.Policy{First: firstRetry, Max: maxExamineRetry}
	for pause := retry.First; ; pause = retry.Next(pause) {
		handle, unknown := r.watchTarget(ctr)
		if handle == nil && !unknown {
			return // recorded already
		}
		if handle != nil {
			if err := handle.Wait(ctx); err != nil && ctx.Err() == nil {
				r.containerLogger(ctr).Error("cannot wait for a container", "error", err)
			}
		}
		if ctx.Err() != nil || r.refreshWatched(ctr, unknown) || sleep.For(ctx, pause) != nil { // examines an unknown state
			return
		}
	}
}

// watchTarget returns the shim whose exit must be awaited, and whether the container is in state unknown.
func (r *Runtime) watchTarget(ctr *container) (handle *shim.Handle, unknown bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return ctr.shim, ctr.State == cri.ContainerUnknown && !ctr.removed // nil if the exit is recorded
}

// refreshWatched refreshes the state of a watched container. It returns true if the watching goroutine can stop.
func (r *Runtime) refreshWatched(ctr *container, wasUnknown bool) (stop bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.refreshState(ctr) != nil {
		return r.closed
	}
	// If the state was unknown and the container runs, refreshState has emitted an event that starts another watcher.
	return ctr.State != cri.ContainerUnknown && (wasUnknown || ctr.shim == nil)
}

// addStream registers a stream for events. It returns the containers that are running or in state unknown, because the
// stream must watch for their exit.
func (r *Runtime) addStream(stream *eventStream) (running []*container, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errClosed
	}
	r.streams[stream] = true
	for _, c := range r.containers {
		if c.shim != nil || c.State == cri.ContainerUnknown {
			running = append(running, c)
		}
	}
	return running, nil
}

func (r *Runtime) removeStream(stream *eventStream) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.streams, stream)
}

// takeEvents returns the queued events of a stream, and empties its queue.
func (r *Runtime) takeEvents(stream *eventStream) ([]queuedEvent, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errClosed
	}
	batch := stream.queue
	stream.queue = nil
	return batch, nil
}
