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

// eventWatch is an open event stream and the events received from it.
type eventWatch struct {
	t        *testCase
	cancel   context.CancelFunc
	returned chan error // error that StreamEvents returned

	mu          sync.Mutex // guards all below
	events      []cri.Event
	callbackErr error // error that the callback returns from now on
}

// watchEvents opens an event stream and returns when it delivers events.
func (t *testCase) watchEvents() *eventWatch {
	streamer, ok := t.rt.(cri.EventStreamer)
	if !ok {
		t.Skip("the runtime is no cri.EventStreamer")
	}
	ctx, cancel := context.WithCancel(t.ctx)
	w := &eventWatch{t: t, cancel: cancel, returned: make(chan error, 1)}
	var wg sync.WaitGroup
	wg.Go(func() { w.returned <- streamer.StreamEvents(ctx, w.addEvent) })
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	// nothing signals that a stream is open, so sandboxes run until one yields an event
	w.awaitCanary()
	return w
}

func (w *eventWatch) addEvent(event cri.Event) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, event)
	return w.callbackErr
}

// awaitCanary waits until the event stream delivers events, or has ended. To test this, it runs and removes sandboxes until
// the stream reports the removal of a sandbox.
func (w *eventWatch) awaitCanary() {
	w.t.Helper()
	w.t.Until(ruleEvents, func() (bool, string) {
		id := w.t.runSandbox(w.t.newPodConfig())
		w.t.Succeed(w.t.rt.RemoveSandbox(w.t.ctx, id), ruleRemoveSandbox, "RemoveSandbox")
		time.Sleep(100 * time.Millisecond)
		_, ok := w.findEvent(id, cri.EventDeleted)
		return ok || len(w.returned) > 0, "StreamEvents reported none of the sandboxes that were made"
	})
}

// findEvent returns the first received event of this type for the object with this ID, and false if there is none.
func (w *eventWatch) findEvent(id string, typ cri.EventType) (cri.Event, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.events {
		if e.ID == id && e.Type == typ {
			return e, true
		}
	}
	return cri.Event{}, false
}

// awaitEvent waits for an event of this type for an object, and checks the pod of the event.
func (w *eventWatch) awaitEvent(config *cri.SandboxConfig, id string, typ cri.EventType) {
	w.t.Helper()
	w.t.Until(ruleEvents, func() (bool, string) {
		e, ok := w.findEvent(id, typ)
		if ok && e.Pod.UID != "" {
			w.t.Hold(e.Pod.UID == config.Pod.UID, ruleEvents, "event %v of %s is of pod %s, want %s", typ, id, e.Pod.UID, config.Pod.UID)
		}
		return ok, "StreamEvents reported no event " + typ.String() + " of " + id
	})
}

// eventsOrder tests that each change of a sandbox or container yields its event.
func eventsOrder(t *testCase) {
	w := t.watchEvents()
	s := t.newPodConfig()
	sandbox := t.runSandbox(s)
	w.awaitEvent(s, sandbox, cri.EventStarted)
	id := t.createContainer(sandbox, s, t.newContainerConfig(s, "main", exitsOnTERM(0)))
	// a runtime may omit EventCreated
	_, early := w.findEvent(id, cri.EventStarted)
	t.Hold(!early, ruleEvents, "event started of a container that was only created")
	t.Succeed(t.rt.StartContainer(t.ctx, id), ruleStart, "StartContainer")
	w.awaitEvent(s, id, cri.EventStarted)
	t.Succeed(t.rt.StopContainer(t.ctx, id, 0), ruleStop, "StopContainer")
	w.awaitEvent(s, id, cri.EventStopped)
	t.Succeed(t.rt.RemoveContainer(t.ctx, id), ruleRemove, "RemoveContainer")
	w.awaitEvent(s, id, cri.EventDeleted)

	job := t.startContainer(sandbox, s, t.newContainerConfig(s, "job", exitsAfter(0, 3)))
	w.awaitEvent(s, job, cri.EventStopped)
	c := t.containerStatus(job)
	t.Hold(c.State == cri.ContainerExited && c.ExitCode == 3, ruleEvents,
		"after the event stopped the container is %v with exit code %d, want exited with 3", c.State, c.ExitCode)

	t.Succeed(t.rt.StopSandbox(t.ctx, sandbox), ruleStopSandbox, "StopSandbox")
	w.awaitEvent(s, sandbox, cri.EventStopped)
	t.Succeed(t.rt.RemoveSandbox(t.ctx, sandbox), ruleRemoveSandbox, "RemoveSandbox")
	w.awaitEvent(s, sandbox, cri.EventDeleted)
}

func eventsEnd(t *testCase) {
	w := t.watchEvents()
	w.cancel()
	err := w.awaitEnd()
	t.Hold(errors.Is(err, context.Canceled), ruleEventsEnd, "StreamEvents whose ctx was cancelled returns %v", err)

	w = t.watchEvents()
	enough := errors.New("enough")
	w.mu.Lock()
	w.callbackErr = enough
	w.mu.Unlock()
	w.awaitCanary()
	err = w.awaitEnd()
	t.Hold(errors.Is(err, enough), ruleEventsEnd, "StreamEvents whose callback failed returns %v", err)
}

// awaitEnd waits until StreamEvents has returned, and returns the error of StreamEvents.
func (w *eventWatch) awaitEnd() (err error) {
	w.t.Helper()
	select {
	case err = <-w.returned:
	case <-time.After(waitTimeout):
		w.t.Hold(false, ruleEventsEnd, "StreamEvents has not returned")
	}
	return err
}
