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

// fakeRuntime is a runtime whose containers and sandboxes the test sets, and whose calls fail and hang as the test sets. Its
// interfaces are chosen by withInterfaces.
type fakeRuntime struct {
	mu         sync.Mutex // guards the fields below
	sandboxes  []cri.Sandbox
	containers []cri.Container
	summary    bool                                       // List leaves out the details
	late       bool                                       // lists are read when a slow call ends, else when it begins
	faults     map[string]func(ctx context.Context) error // by "Call" or "Call id"
	called     func(call, id string)
	streams    map[chan cri.Event]chan error
	streamErr  error // returned by StreamEvents at once
}

func newFakeRuntime() *fakeRuntime {
	return &fakeRuntime{
		faults:  make(map[string]func(context.Context) error),
		called:  func(string, string) {},
		streams: make(map[chan cri.Event]chan error),
	}
}

// withInterfaces returns the runtime as a Lister with only the given optional interfaces.
func (s *fakeRuntime) withInterfaces(inspector, podLister, events bool) cri.Lister {
	s.summary = inspector
	var (
		l = fakeLister{s}
		i = fakeInspector{s}
		p = fakePodLister{s}
		e = fakeStreamer{s}
	)
	switch {
	case inspector && podLister && events:
		return struct {
			fakeLister
			fakeInspector
			fakePodLister
			fakeStreamer
		}{l, i, p, e}
	case inspector && podLister:
		return struct {
			fakeLister
			fakeInspector
			fakePodLister
		}{l, i, p}
	case inspector && events:
		return struct {
			fakeLister
			fakeInspector
			fakeStreamer
		}{l, i, e}
	case podLister && events:
		return struct {
			fakeLister
			fakePodLister
			fakeStreamer
		}{l, p, e}
	case inspector:
		return struct {
			fakeLister
			fakeInspector
		}{l, i}
	case podLister:
		return struct {
			fakeLister
			fakePodLister
		}{l, p}
	case events:
		return struct {
			fakeLister
			fakeStreamer
		}{l, e}
	}
	return l
}

// beginCall logs a call and applies its fault.
func (s *fakeRuntime) beginCall(ctx context.Context, name, id string) error {
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

// setFault sets a function that runs before a call and may fail it; nil removes the fault.
func (s *fakeRuntime) setFault(call string, f func(ctx context.Context) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[call] = f
}

func (s *fakeRuntime) snapshot() cri.Snapshot {
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

// listObjects implements the calls that list.
func (s *fakeRuntime) listObjects(ctx context.Context, call, id string) (cri.Snapshot, error) {
	snap := s.snapshot()
	if err := s.beginCall(ctx, call, id); err != nil {
		return cri.Snapshot{}, err
	}
	if s.late {
		snap = s.snapshot()
	}
	return snap, nil
}

// putSandbox adds or replaces a sandbox, putContainer a container.
func (s *fakeRuntime) putSandbox(sb cri.Sandbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.IndexFunc(s.sandboxes, func(o cri.Sandbox) bool { return o.ID == sb.ID }); i >= 0 {
		s.sandboxes[i] = sb
		return
	}
	s.sandboxes = append(s.sandboxes, sb)
}

func (s *fakeRuntime) putContainer(c cri.Container) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.IndexFunc(s.containers, func(o cri.Container) bool { return o.ID == c.ID }); i >= 0 {
		s.containers[i] = c
		return
	}
	s.containers = append(s.containers, c)
}

func (s *fakeRuntime) removeObject(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sandboxes = slices.DeleteFunc(s.sandboxes, func(o cri.Sandbox) bool { return o.ID == id })
	s.containers = slices.DeleteFunc(s.containers, func(o cri.Container) bool { return o.ID == id })
}

// emitEvent sends an event to all open streams and returns their number.
func (s *fakeRuntime) emitEvent(e cri.Event) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ch := range s.streams {
		ch <- e
	}
	return len(s.streams)
}

// setStreamError closes all streams and makes new streams fail with err, if it is not nil.
func (s *fakeRuntime) setStreamError(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streamErr = err
	for _, end := range s.streams {
		end <- errors.Join(errors.New("broken"), err)
	}
	clear(s.streams)
}

type fakeLister struct{ *fakeRuntime }

func (l fakeLister) List(ctx context.Context) (cri.Snapshot, error) {
	return l.listObjects(ctx, "List", "")
}

type fakePodLister struct{ *fakeRuntime }

func (l fakePodLister) ListPod(ctx context.Context, uid string) (cri.Pod, error) {
	snap, err := l.listObjects(ctx, "ListPod", uid)
	return snap.Pod(uid), err
}

type fakeInspector struct{ *fakeRuntime }

func (i fakeInspector) SandboxStatus(ctx context.Context, id string) (cri.Sandbox, error) {
	if err := i.beginCall(ctx, "SandboxStatus", id); err != nil {
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

func (i fakeInspector) ContainerStatus(ctx context.Context, id string) (cri.Container, error) {
	if err := i.beginCall(ctx, "ContainerStatus", id); err != nil {
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

type fakeStreamer struct{ *fakeRuntime }

func (s fakeStreamer) StreamEvents(ctx context.Context, fn func(cri.Event) error) error {
	if err := s.beginCall(ctx, "StreamEvents", ""); err != nil {
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
