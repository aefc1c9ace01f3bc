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
	"github.com/seed81659283/nodeagent/internal/kubeapi"
	"github.com/seed81659283/nodeagent/internal/runonce"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

// The limits of a [Recorder]. Source: maxQueuedEvents, maxTriesPerEvent and defaultSleepDuration in tools/record/event.go of client-go.
const (
	maxQueuedEvents = 1000
	maxEventTries   = 12
	eventRetryDelay = 10 * time.Second
)

// RecorderOptions configures a [Recorder]. The zero value is for production.
type RecorderOptions struct {
	// Pod returns a pod by its UID as the agent runs it, or nil: an event of a container says of which list it is. Nil: of the regular ones.
	Pod func(uid string) *corev1.Pod
	// NodeUID returns the UID of the Node object, empty while that is not known. Nil: events of the node have none.
	NodeUID func() types.UID
	// Rand returns a number in [0,1) for jitter. Nil means math/rand/v2.
	Rand func() float64
	// Logger gets what is dropped. Nil is that of the Source.
	Logger *slog.Logger
	// EventDropped is called for each event that is not sent, with why, by the caller of Event or by Run. Nil is not told.
	EventDropped func(event *corev1.Event, why error)
}

// RecorderStats counts events since a [Recorder] was made.
type RecorderStats struct {
	Recorded uint64 // handed to it
	Sent     uint64 // that the API server has taken, as new ones or as one more of another
	Skipped  uint64 // of which there were too many of one object
	Dropped  uint64 // that were lost: the queue was full, or the API server did not take them
	Queued   int    // that wait
}

// Why an event is not sent.
var (
	// ErrQueueFull is why an event is dropped at once: 1,000 others wait.
	ErrQueueFull = errors.New("1000 events wait to be sent")
)

// Recorder sends events to the API server, as the node's kubelet would: those who look for events of a kubelet find them. Repeated
// events are counted, similar ones are combined, and of one object not more than a few are sent (package internal/correlator). Recording
// never waits. Make one with [Source.Recorder].
type Recorder struct {
	client *kubeapi.Client
	node   string
	opts   RecorderOptions
	guard  runonce.Guard
	wakeup chan struct{}

	mu         sync.Mutex // guards what follows
	queue      []queuedEvent
	stats      RecorderStats
	lastNumber int64 // the time of the newest event: names are made of it
	refusals   refusalLog

	correlator *correlator.Correlator // of the goroutine of Run alone
}

// recorded is an event that is to be sent, and what has yet to be known of it.
type queuedEvent struct {
	event     *corev1.Event
	container string // of the pod that it is about; empty: it is about no container
}

// newRecorder returns a Recorder of events of a node and its pods.
func newRecorder(client *kubeapi.Client, node string, o RecorderOptions) *Recorder {
	if o.Rand == nil {
		o.Rand = rand.Float64
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Recorder{client: client, node: node, opts: o, wakeup: make(chan struct{}, 1), correlator: correlator.New()}
}

// Event records something about an object. The event type is [corev1.EventTypeNormal] or [corev1.EventTypeWarning]. It does not wait: an
// event that there is no room for is dropped, and counted. What is said of an object may be read by all who can read events of its
// namespace.
func (r *Recorder) Event(about corev1.ObjectReference, eventType, reason, message string) {
	r.enqueueEvent(about, "", nil, eventType, reason, message)
}

// record puts an event into the queue.
func (r *Recorder) enqueueEvent(about corev1.ObjectReference, container string, annotations map[string]string, eventType, reason, message string) {
	r.guard.Require("apiserver.Recorder", r.opts.Logger, nil)
	r.mu.Lock()
	r.stats.Recorded++
	now := time.Now()
	r.lastNumber = max(now.UnixNano(), r.lastNumber+1)
	e := newEvent(about, r.node, eventType, reason, message, now, r.lastNumber)
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

// Stats returns how many events there were.
func (r *Recorder) Stats() RecorderStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	stats := r.stats
	stats.Queued = len(r.queue)
	return stats
}

// Run sends events, one after the other, until ctx ends; then it returns nil, and what waits is lost. While the API server cannot be
// reached it tries each 12 times, 10 s apart. It returns an error when it is called twice.
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

// take returns the event that has waited for longest.
func (r *Recorder) dequeueEvent() (next queuedEvent, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) == 0 {
		return next, false
	}
	next = r.queue[0]
	r.queue[0] = queuedEvent{}
	if r.queue = r.queue[1:]; len(r.queue) == 0 {
		r.queue = nil // or the array grows for ever
	}
	return next, true
}

// handle sends an event, or what it is with those before it.
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
		case !isUnreachable(err), try == maxEventTries, ctx.Err() != nil:
			r.dropEvent(result.Event, err)
			return
		}
		wait := eventRetryDelay
		if try == 1 { // not all agents at the same time
			wait = time.Duration(float64(wait) * r.opts.Rand())
		}
		if sleep.For(ctx, wait) != nil {
			r.dropEvent(result.Event, err)
			return
		}
	}
}

// send sends an event: as one more of what the API server has, or if it has that no longer, as a new one.
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
		return nil // the answer to an earlier try was lost: nobody else has this name
	}
	return err
}

// mayWorkLater reports whether the API server was not reached. What it refuses it will refuse again.
func isUnreachable(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status)
}

// drop counts and tells an event that is lost.
func (r *Recorder) dropEvent(e *corev1.Event, why error) {
	r.updateStats(func(s *RecorderStats) { s.Dropped++ })
	if !errors.Is(why, ErrQueueFull) || r.Stats().Dropped%maxQueuedEvents == 1 {
		r.opts.Logger.Warn("event is dropped", "about", e.InvolvedObject.Namespace+"/"+e.InvolvedObject.Name, "reason", e.Reason, "error", why)
	}
	if r.opts.EventDropped != nil {
		r.opts.EventDropped(e, why)
	}
}

func (r *Recorder) updateStats(change func(*RecorderStats)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.stats)
}

// Recorder returns what sends events of the node and its pods.
func (s *Source) Recorder(o RecorderOptions) *Recorder {
	if o.Logger == nil {
		o.Logger = s.opts.Logger
	}
	return newRecorder(s.client, s.opts.NodeName, o)
}
