// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/internal/correlator"
	"github.com/seed81659283/nodeagent/internal/eventobject"
	"github.com/seed81659283/nodeagent/internal/kubeapi"
	"github.com/seed81659283/nodeagent/internal/runonce"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

// Limits of a [Recorder]. Source: maxQueuedEvents, maxTriesPerEvent and defaultSleepDuration in tools/record/event.go of
// client-go.
const (
	maxQueuedEvents = 1000
	maxEventTries   = 12
	eventRetryDelay = 10 * time.Second
)

// RecorderOptions configures a [Recorder]. The zero value is ready for production.
type RecorderOptions struct {
	// Pod returns the pod of a UID as the agent runs it, or nil. It is used to find whether a container is an init, regular or
	// ephemeral container. Nil: all containers are regular.
	Pod func(uid string) *corev1.Pod
	// NodeUID returns the UID of the Node object, empty while it is unknown. Nil: events of the node have no UID.
	NodeUID func() types.UID
	// Rand returns a number in [0,1) for jitter. Nil means math/rand/v2.
	Rand func() float64
	// Logger gets dropped events. Nil means that of the Source.
	Logger *slog.Logger
	// EventDropped is called for each lost event with the reason why, in the goroutine of Event or of Run. Nil: no hook.
	EventDropped func(event *corev1.Event, why error)
}

// RecorderStats counts the events of a [Recorder] since its creation.
type RecorderStats struct {
	Recorded uint64 // passed to the Recorder
	Sent     uint64 // accepted by the API server, as new events or as a higher count of an event
	Skipped  uint64 // not sent, because there were too many events of one object
	Dropped  uint64 // lost: the queue was full, or the API server did not accept them
	Queued   int    // waiting in the queue
}

// Causes of dropped events.
var (
	// ErrQueueFull is passed to EventDropped for an event that is dropped at once, because the queue has 1,000 events.
	ErrQueueFull = errors.New("1000 events wait to be sent")
)

// Recorder sends events to the API server with the source "kubelet", so that tools find them. It counts repeated events, combines
// similar events and limits the events of one object, as client-go does (package internal/correlator). Recording never blocks;
// [Recorder.Run] sends. Create one with [Source.Recorder].
type Recorder struct {
	client *kubeapi.Client
	node   string
	opts   RecorderOptions
	guard  runonce.Guard
	wakeup chan struct{}

	mu         sync.Mutex // guards the fields below
	queue      []queuedEvent
	stats      RecorderStats
	lastNumber int64 // Unix nanoseconds of the newest event, increased to be unique; event names contain it
	refusals   refusalLog

	correlator *correlator.Correlator // used by the goroutine of Run only
}

// queuedEvent is an event that waits to be sent.
type queuedEvent struct {
	event     *corev1.Event
	container string // name of the container that it is about; empty: none
}

// newRecorder returns a Recorder for events about the node and its pods.
func newRecorder(client *kubeapi.Client, node string, opts RecorderOptions) *Recorder {
	if opts.Rand == nil {
		opts.Rand = rand.Float64
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	return &Recorder{client: client, node: node, opts: opts, wakeup: make(chan struct{}, 1), correlator: correlator.New()}
}

// Event records an event about an object, of type [corev1.EventTypeNormal] or [corev1.EventTypeWarning]. It does not block: if
// the queue is full, it drops and counts the event. All users who may read events of the namespace can read the message.
func (r *Recorder) Event(about corev1.ObjectReference, eventType, reason, message string) {
	r.enqueueEvent(about, "", nil, eventType, reason, message)
}

// enqueueEvent adds an event to the queue, or drops it if the queue is full. container may be "", and annotations nil.
func (r *Recorder) enqueueEvent(about corev1.ObjectReference, container string, annotations map[string]string, eventType, reason, message string) {
	r.guard.Require("apiserver.Recorder", r.opts.Logger, nil)
	r.mu.Lock()
	r.stats.Recorded++
	now := time.Now()
	r.lastNumber = max(now.UnixNano(), r.lastNumber+1)
	e := eventobject.New(about, r.node, eventType, reason, message, now, r.lastNumber)
	e.Annotations = maps.Clone(annotations)
	full := len(r.queue) >= maxQueuedEvents
	if !full {
		r.queue = append(r.queue, queuedEvent{e, container})
	}
	r.mu.Unlock()
	if full {
		r.dropEvent(e, ErrQueueFull)
		return
	}
	sleep.Wake(r.wakeup)
}

// Stats returns how many events were recorded, sent, skipped and dropped since the Recorder was created, and how many are in
// the queue now.
func (r *Recorder) Stats() RecorderStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	stats := r.stats
	stats.Queued = len(r.queue)
	return stats
}

// Run sends the queued events one by one until ctx ends, and then returns nil; queued events are lost. While the API server is
// unreachable, it tries each event 12 times, 10 s apart. Before the first client certificate it waits without a limit. A second call returns an error.
func (r *Recorder) Run(ctx context.Context) error {
	if err := r.guard.Begin(); err != nil {
		return fmt.Errorf("apiserver.Recorder: %w", err)
	}
	defer r.guard.End()
	for {
		for next, ok := r.dequeueEvent(); ok; next, ok = r.dequeueEvent() {
			r.processEvent(ctx, next)
			if ctx.Err() != nil {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.wakeup:
		}
	}
}

// dequeueEvent removes the oldest event from the queue and returns it. ok is false if the queue is empty.
func (r *Recorder) dequeueEvent() (next queuedEvent, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) == 0 {
		return next, false
	}
	next = r.queue[0]
	r.queue[0] = queuedEvent{}
	if r.queue = r.queue[1:]; len(r.queue) == 0 {
		r.queue = nil // otherwise the array would never shrink
	}
	return next, true
}

// processEvent merges an event with earlier equal events, and sends the result. It retries while the API server is unreachable.
func (r *Recorder) processEvent(ctx context.Context, next queuedEvent) {
	r.setFieldPath(&next)
	result := r.correlator.Correlate(next.event, time.Now())
	if result.Skip {
		r.updateStats(func(s *RecorderStats) { s.Skipped++ })
		return
	}
	for try := 1; ; try++ {
		err := r.sendEvent(ctx, result)
		switch {
		case err == nil:
			r.updateStats(func(s *RecorderStats) { s.Sent++ })
			return
		case errors.Is(err, kubeapi.ErrNoCredentials) && ctx.Err() == nil:
			try-- // an approval may take longer than all tries
			continue
		case !isUnreachable(err), try == maxEventTries, ctx.Err() != nil:
			r.dropEvent(result.Event, err)
			return
		}
		wait := eventRetryDelay
		if try == 1 { // jitter: agents must not retry all at once
			wait = time.Duration(float64(wait) * r.opts.Rand())
		}
		if sleep.For(ctx, wait) != nil {
			r.dropEvent(result.Event, err)
			return
		}
	}
}

// sendEvent patches the stored event, or creates the event if there is no patch or the stored event was deleted.
func (r *Recorder) sendEvent(ctx context.Context, result correlator.Result) error {
	events := kubeapi.In(r.client, kubeapi.Events, result.Event.Namespace)
	if result.Patch != nil {
		_, err := events.Patch(ctx, result.Event.Name, types.StrategicMergePatchType, result.Patch)
		if !apierrors.IsNotFound(err) {
			return err
		}
	}
	_, err := events.Create(ctx, result.Event)
	if apierrors.IsAlreadyExists(err) {
		return nil // an earlier try succeeded and its response was lost: no other client uses this name
	}
	return err
}

// isUnreachable reports whether err is a connection error, and not an error that the API server has returned.
func isUnreachable(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status)
}

// dropEvent counts and logs a lost event, and calls the hook.
func (r *Recorder) dropEvent(event *corev1.Event, cause error) {
	r.updateStats(func(s *RecorderStats) { s.Dropped++ })
	if !errors.Is(cause, ErrQueueFull) || r.Stats().Dropped%maxQueuedEvents == 1 {
		r.opts.Logger.Warn("event is dropped", "about", event.InvolvedObject.Namespace+"/"+event.InvolvedObject.Name, "reason", event.Reason, "error", cause)
	}
	if r.opts.EventDropped != nil {
		r.opts.EventDropped(event, cause)
	}
}

// updateStats calls change, which may modify the event counts, while it holds the lock.
func (r *Recorder) updateStats(change func(*RecorderStats)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.stats)
}

// Recorder returns a new [Recorder] for events of the node and its pods.
func (s *Source) Recorder(opts RecorderOptions) *Recorder {
	if opts.Logger == nil {
		opts.Logger = s.opts.Logger
	}
	return newRecorder(s.events, s.opts.NodeName, opts)
}
