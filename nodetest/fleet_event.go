// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/correlator"
	"github.com/seed81659283/nodeagent/internal/eventobject"
	"github.com/seed81659283/nodeagent/internal/kubeapi"
	"github.com/seed81659283/nodeagent/internal/sleep"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
	"github.com/seed81659283/nodeagent/nodestatus"
)

// fleetEvents counts and combines the events of all nodes.
type fleetEvents struct {
	mu         sync.Mutex // guards the fields below
	correlator *correlator.Correlator
	lastNumber int64 // Unix nanoseconds of the newest event, increased to be unique
}

// Limits of events.
const (
	maxUnsentEvents = 10_000           // of the whole Fleet; more are dropped
	maxEventTries   = 12               // while the API server is unreachable, as of client-go
	eventRetryWait  = 10 * time.Second // between two tries
)

// selects reports whether events of this type are sent.
func (s EventSelection) selects(eventType string) bool {
	return s == EventsAll || s == EventsWarning && eventType == corev1.EventTypeWarning
}

// sendPodEvent sends an event of a pod of the node n, if FleetOptions.Events selects it. It does not block.
func (f *Fleet) sendPodEvent(n *fleetNode, pod cri.PodIdentity, e podevents.Event) {
	if !f.options.Events.selects(e.Type) {
		return
	}
	about := eventobject.PodReference(pod)
	if e.Container != "" {
		about.FieldPath = "spec.containers{" + e.Container + "}"
		if p := n.loop.byUID[pod.UID]; p != nil {
			for i := range p.pod.Spec.InitContainers {
				if p.pod.Spec.InitContainers[i].Name == e.Container {
					about.FieldPath = "spec.initContainers{" + e.Container + "}"
				}
			}
		}
	}
	f.sendEvent(n.name, about, e.Type, e.Reason, e.Message)
}

// sendNodeEvent sends an event of the node n, if FleetOptions.Events selects it. It does not block.
func (f *Fleet) sendNodeEvent(n *fleetNode, e nodestatus.Event) {
	if f.options.Events.selects(e.Type) {
		f.sendEvent(n.name, corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: n.name, UID: n.object.server.UID}, e.Type, e.Reason, e.Message)
	}
}

// sendEvent counts an event of the named node, and adds the request for it to the queue. It drops the event if the queue is full.
func (f *Fleet) sendEvent(node string, about corev1.ObjectReference, eventType, reason, message string) {
	if f.eventRequests.length() >= maxUnsentEvents {
		f.failures.record(f, "send event", errQueueFull)
		return
	}
	e := &f.events
	e.mu.Lock()
	if e.correlator == nil {
		e.correlator = correlator.New()
	}
	now := f.clock.now()
	e.lastNumber = max(now.UnixNano(), e.lastNumber+1)
	result := e.correlator.Correlate(eventobject.New(about, node, eventType, reason, message, now, e.lastNumber), now)
	e.mu.Unlock()
	if !result.Skip {
		f.eventRequests.addRequest(func(ctx context.Context) { f.failures.record(f, "send event", f.storeEvent(ctx, result)) })
	}
}

// errQueueFull is the error of an event that is dropped because too many events wait.
var errQueueFull = errors.New("10000 events wait to be sent: it is dropped")

// storeEvent patches the stored event, or creates the event. It retries while the API server is unreachable.
func (f *Fleet) storeEvent(ctx context.Context, result correlator.Result) (err error) {
	events := kubeapi.In(f.client, kubeapi.Events, result.Event.Namespace)
	for range maxEventTries {
		err = apierrors.NewNotFound(corev1.Resource("events"), result.Event.Name)
		if result.Patch != nil {
			_, err = events.Patch(ctx, result.Event.Name, types.StrategicMergePatchType, result.Patch)
		}
		if apierrors.IsNotFound(err) {
			_, err = events.Create(ctx, result.Event)
		}
		if status := apierrors.APIStatus(nil); err == nil || errors.As(err, &status) {
			if apierrors.IsAlreadyExists(err) {
				return nil // a previous try has succeeded
			}
			return err
		}
		if sleep.For(ctx, jitter(eventRetryWait, 0.5, 1.5)) != nil {
			return err
		}
	}
	return err
}
