// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package pleg_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/cri"
)

// stage is a runtime whose objects are put there by hand, in any state, and whose calls fail and hang as told. It
// is only what the roles it is given to a Generator as make of it: see the facade method.
type stage struct {
	mu         sync.Mutex // guards the fields below
	sandboxes  []cri.Sandbox
	containers []cri.Container
	summary    bool                                       // List leaves out the details
	late       bool                                       // lists are read when a slow call ends, else when it begins
	faults     map[string]func(ctx context.Context) error // by "Call" or "Call id"
	called     func(call, id string)
	streams    map[chan cri.Event]chan error
	streamErr  error // what StreamEvents returns at once
}

func newStage() *stage {
	return &stage{
		faults:  make(map[string]func(context.Context) error),
		called:  func(string, string) {},
		streams: make(map[chan cri.Event]chan error),
	}
}

// facade returns the stage as a Lister that has only the named capabilities.
func (s *stage) facade(inspector, podLister, events bool) cri.Lister {
	s.summary = inspector
	var (
		l = listing{s}
		i = inspecting{s}
		p = podListing{s}
		e = streaming{s}
	)
	switch {
	case inspector && podLister && events:
		return struct {
			listing
			inspecting
			podListing
			streaming
		}{l, i, p, e}
	case inspector && podLister:
		return struct {
			listing
			inspecting
			podListing
		}{l, i, p}
	case inspector && events:
		return struct {
			listing
			inspecting
			streaming
		}{l, i, e}
	case podLister && events:
		return struct {
			listing
			podListing
			streaming
		}{l, p, e}
	case inspector:
		return struct {
			listing
			inspecting
		}{l, i}
	case podLister:
		return struct {
			listing
			podListing
		}{l, p}
	case events:
		return struct {
			listing
			streaming
		}{l, e}
	}
	return l
}

// call is what every call begins with.
func (s *stage) call(ctx context.Context, name, id string) error {
	s.mu.Lock()
	s.called(name, id)
	fault := s.faults[name+" "+id]
	if fault == nil {
		fault = s.faults[name]
	}
	s.mu.Unlock()
	if fault == nil {
		return nil
	}
	if err := fault(ctx); err != nil {
		return &cri.Error{Op: name, ID: id, Err: err}
	}
	return nil
}

// fault makes a call do something before it works, or not work at all; nil heals it.
func (s *stage) fault(call string, f func(ctx context.Context) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[call] = f
}

func (s *stage) snapshot() cri.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	snap := cri.Snapshot{
		Time: time.Now(), Sandboxes: slices.Clone(s.sandboxes), Containers: slices.Clone(s.containers),
	}
	if s.summary {
		for i := range snap.Sandboxes {
			snap.Sandboxes[i].IPs = nil
		}
		for i := range snap.Containers {
			snap.Containers[i].ExitCode = 0
		}
	}
	return snap
}

// read is a call that lists.
func (s *stage) read(ctx context.Context, call, id string) (cri.Snapshot, error) {
	snap := s.snapshot()
	if err := s.call(ctx, call, id); err != nil {
		return cri.Snapshot{}, err
	}
	if s.late {
		snap = s.snapshot()
	}
	return snap, nil
}

// putSandbox adds or replaces a sandbox, putContainer a container.
func (s *stage) putSandbox(sb cri.Sandbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.IndexFunc(s.sandboxes, func(o cri.Sandbox) bool { return o.ID == sb.ID }); i >= 0 {
		s.sandboxes[i] = sb
		return
	}
	s.sandboxes = append(s.sandboxes, sb)
}

func (s *stage) putContainer(c cri.Container) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.IndexFunc(s.containers, func(o cri.Container) bool { return o.ID == c.ID }); i >= 0 {
		s.containers[i] = c
		return
	}
	s.containers = append(s.containers, c)
}

func (s *stage) drop(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sandboxes = slices.DeleteFunc(s.sandboxes, func(o cri.Sandbox) bool { return o.ID == id })
	s.containers = slices.DeleteFunc(s.containers, func(o cri.Container) bool { return o.ID == id })
}

// emit sends an event to whoever listens now, and returns to how many.
func (s *stage) emit(e cri.Event) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ch := range s.streams {
		ch <- e
	}
	return len(s.streams)
}

// stream makes new streams fail with err, nil lets them live, and breaks those there are.
func (s *stage) stream(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streamErr = err
	for _, end := range s.streams {
		end <- errors.Join(errors.New("broken"), err)
	}
	clear(s.streams)
}

type listing struct{ *stage }

func (l listing) List(ctx context.Context) (cri.Snapshot, error) {
	return l.read(ctx, "List", "")
}

type podListing struct{ *stage }

func (l podListing) ListPod(ctx context.Context, uid string) (cri.Pod, error) {
	snap, err := l.read(ctx, "ListPod", uid)
	return snap.Pod(uid), err
}

type inspecting struct{ *stage }

func (i inspecting) SandboxStatus(ctx context.Context, id string) (cri.Sandbox, error) {
	if err := i.call(ctx, "SandboxStatus", id); err != nil {
		return cri.Sandbox{}, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, sb := range i.sandboxes {
		if sb.ID == id {
			return sb, nil
		}
	}
	return cri.Sandbox{}, &cri.Error{Op: "SandboxStatus", ID: id, Err: cri.ErrNotFound}
}

func (i inspecting) ContainerStatus(ctx context.Context, id string) (cri.Container, error) {
	if err := i.call(ctx, "ContainerStatus", id); err != nil {
		return cri.Container{}, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, c := range i.containers {
		if c.ID == id {
			return c, nil
		}
	}
	return cri.Container{}, &cri.Error{Op: "ContainerStatus", ID: id, Err: cri.ErrNotFound}
}

type streaming struct{ *stage }

func (s streaming) StreamEvents(ctx context.Context, fn func(cri.Event) error) error {
	if err := s.call(ctx, "StreamEvents", ""); err != nil {
		return err
	}
	s.mu.Lock()
	if s.streamErr != nil {
		defer s.mu.Unlock()
		return s.streamErr
	}
	events, end := make(chan cri.Event, 1000), make(chan error, 1)
	s.streams[events] = end
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.streams, events)
	}()
	for {
		select {
		case e := <-events:
			if err := fn(e); err != nil {
				return err
			}
		case err := <-end:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
