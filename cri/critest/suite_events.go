// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package critest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/cri"
)

// watch is an event stream that is known to have begun.
type watch struct {
	t      *trial
	cancel context.CancelFunc
	ended  chan error // what StreamEvents returned

	mu     sync.Mutex // guards all below
	events []cri.Event
	fail   error // what the callback returns from now on
}

// watch begins an event stream. As nothing says that a stream has begun, pods come and go until one is heard of.
func (t *trial) watch() *watch {
	streamer, ok := t.rt.(cri.EventStreamer)
	if !ok {
		t.Skip("the runtime is no cri.EventStreamer")
	}
	ctx, cancel := context.WithCancel(t.ctx)
	w := &watch{t: t, cancel: cancel, ended: make(chan error, 1)}
	var wg sync.WaitGroup
	wg.Go(func() { w.ended <- streamer.StreamEvents(ctx, w.add) })
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	w.canary()
	return w
}

func (w *watch) add(e cri.Event) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, e)
	return w.fail
}

// canary makes and removes sandboxes until the stream shows one of them or has ended.
func (w *watch) canary() {
	w.t.Helper()
	w.t.Until(ruleEvents, func() (bool, string) {
		id := w.t.run(w.t.pod())
		w.t.Succeed(w.t.rt.RemoveSandbox(w.t.ctx, id), ruleRemoveSandbox, "RemoveSandbox")
		time.Sleep(100 * time.Millisecond)
		_, ok := w.seen(id, cri.EventDeleted)
		return ok || len(w.ended) > 0, "StreamEvents reported none of the sandboxes that were made"
	})
}

func (w *watch) seen(id string, typ cri.EventType) (cri.Event, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.events {
		if e.ID == id && e.Type == typ {
			return e, true
		}
	}
	return cri.Event{}, false
}

// expect waits for an event.
func (w *watch) expect(s *cri.SandboxConfig, id string, typ cri.EventType) {
	w.t.Helper()
	w.t.Until(ruleEvents, func() (bool, string) {
		e, ok := w.seen(id, typ)
		if ok && e.Pod.UID != "" {
			w.t.Hold(e.Pod.UID == s.Pod.UID, ruleEvents, "event %v of %s is of pod %s, want %s", typ, id, e.Pod.UID, s.Pod.UID)
		}
		return ok, "StreamEvents reported no event " + typ.String() + " of " + id
	})
}

// eventsOrder waits for each event before it makes the next one happen. A runtime need not report that an object was created.
func eventsOrder(t *trial) {
	w := t.watch()
	s := t.pod()
	sandbox := t.run(s)
	w.expect(s, sandbox, cri.EventStarted)
	id := t.create(sandbox, s, t.container(s, "main", forever(0)))
	_, early := w.seen(id, cri.EventStarted)
	t.Hold(!early, ruleEvents, "event started of a container that was only created")
	t.Succeed(t.rt.StartContainer(t.ctx, id), ruleStart, "StartContainer")
	w.expect(s, id, cri.EventStarted)
	t.Succeed(t.rt.StopContainer(t.ctx, id, 0), ruleStop, "StopContainer")
	w.expect(s, id, cri.EventStopped)
	t.Succeed(t.rt.RemoveContainer(t.ctx, id), ruleRemove, "RemoveContainer")
	w.expect(s, id, cri.EventDeleted)

	job := t.start(sandbox, s, t.container(s, "job", exits(0, 3)))
	w.expect(s, job, cri.EventStopped)
	c := t.status(job)
	t.Hold(c.State == cri.ContainerExited && c.ExitCode == 3, ruleEvents,
		"after the event stopped the container is %v with exit code %d, want exited with 3", c.State, c.ExitCode)

	t.Succeed(t.rt.StopSandbox(t.ctx, sandbox), ruleStopSandbox, "StopSandbox")
	w.expect(s, sandbox, cri.EventStopped)
	t.Succeed(t.rt.RemoveSandbox(t.ctx, sandbox), ruleRemoveSandbox, "RemoveSandbox")
	w.expect(s, sandbox, cri.EventDeleted)
}

func eventsEnd(t *trial) {
	w := t.watch()
	w.cancel()
	err := w.end()
	t.Hold(errors.Is(err, context.Canceled), ruleEventsEnd, "StreamEvents whose ctx was cancelled returns %v", err)

	w = t.watch()
	enough := errors.New("enough")
	w.mu.Lock()
	w.fail = enough
	w.mu.Unlock()
	w.canary()
	err = w.end()
	t.Hold(errors.Is(err, enough), ruleEventsEnd, "StreamEvents whose callback failed returns %v", err)
}

// end waits until StreamEvents has returned.
func (w *watch) end() (err error) {
	w.t.Helper()
	select {
	case err = <-w.ended:
	case <-time.After(waitTimeout):
		w.t.Hold(false, ruleEventsEnd, "StreamEvents has not returned")
	}
	return err
}
