// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/seed81659283/nodeagent/agent"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/internal/memimage"
	"github.com/seed81659283/nodeagent/internal/sleep"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
)

// fleetNode is a node of a Fleet: its Loop, and what it has to send to the API server.
type fleetNode struct {
	fleet *Fleet
	name  string
	inbox inbox

	// Of wakeQueue, guarded by its lock.
	wake     time.Time // time of the planned step
	position int       // in the heap; negative: no step is planned

	mu     sync.Mutex // held during a step, and while the result of a request is stored; guards the fields below
	loop   *Loop
	pods   map[string]*fleetPod // by UID
	unsent []*fleetPod          // those that may need a request
	object nodeObject
	lease  nodeLease

	image      *memimage.Image // of the pods and the machine while the node is idle; nil: they are not packed
	report     *memimage.Image // of the Node object and the setup; nil: they are not packed
	idleSince  time.Time       // last change or event, except of the lease
	changed    bool            // the node has received changes since it was packed last
	unpackable bool            // the last attempt to pack has failed: there is no other one
}

// newNode returns a node of the Fleet with these options, which shares memory with the other nodes of sharer.
func (f *Fleet) newNode(ctx context.Context, options Options, sharer *setupSharer) (*fleetNode, error) {
	n := &fleetNode{fleet: f, position: -1, pods: map[string]*fleetPod{}, changed: true}
	options.LogLimit = -1
	loop, err := newLoop(ctx, options, f.clock.now().Add(-agentDelay-agentPause), loopObserver{
		statusChanged: n.markUnsent, podReleased: n.releasePod, podRemoved: n.removePod, conditionsChanged: func() { n.object.reportDue = true },
		eventRecorded: n.recordEvent,
	}, sharer)
	if err != nil {
		return nil, fmt.Errorf("nodetest.NewFleet: node %s: %w", options.Name, err)
	}
	loop.options.Config = agent.Config{} // large, and not used any more
	n.loop, n.name = loop, loop.options.Name
	return n, nil
}

// step runs the events of the Loop that are due at now, and starts the requests that are due. It returns the time of the next step.
func (n *fleetNode) step(now time.Time) (next time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	changes, object, hasObject := n.inbox.takeAll()
	if n.image != nil && len(changes) == 0 {
		return n.stepPacked(object, hasObject, now)
	}
	n.unpack()
	if hasObject || len(changes) > 0 {
		n.idleSince, n.changed = now, n.changed || len(changes) > 0
		n.loop.advanceTo(now)
		if hasObject {
			n.receiveObject(object, now)
		}
		n.receivePods(changes, now)
	}
	if events := n.loop.queue.events; len(events) > 0 && !events[0].at.After(now) {
		n.idleSince = now
		n.loop.advanceTo(now)
	}
	next = sleep.Earlier(n.planPods(now), sleep.Earlier(n.planObject(now), n.planLease(now)))
	if events := n.loop.queue.events; len(events) > 0 {
		return sleep.Earlier(next, events[0].at)
	}
	return sleep.Earlier(next, n.planPack(now))
}

// receivePods applies changes of pods.
func (n *fleetNode) receivePods(changes []podChange, now time.Time) {
	slices.SortStableFunc(changes, func(a, b podChange) int { // as a kubelet admits pods that it gets together
		if a.pod == nil || b.pod == nil || a.uid == b.uid {
			return 0
		}
		return a.pod.CreationTimestamp.Compare(b.pod.CreationTimestamp.Time)
	})
	for _, change := range changes {
		p := n.pods[change.uid]
		switch {
		case change.pod == nil:
			if p != nil {
				p.removed = true
				n.loop.forgetPod(change.uid)
			}
		case p == nil:
			p = &fleetPod{server: change.pod}
			n.pods[change.uid] = p
			p.loop = n.loop.receivePod(change.pod)
			n.addUnsent(p, now)
		case isNewer(change.pod.ResourceVersion, p.server.ResourceVersion):
			p.server = change.pod
			n.loop.receivePod(change.pod)
			n.addUnsent(p, now)
		}
	}
}

// isNewer reports whether the resource version a is newer than b. An unknown version is newer.
func isNewer(a, b string) bool {
	newer, err := resourceversion.CompareResourceVersion(a, b)
	return err != nil || newer > 0
}

// markUnsent plans a request for the status of the pod p, which has changed.
func (n *fleetNode) markUnsent(p *loopPod) {
	if found := n.pods[p.id.UID]; found != nil {
		n.addUnsent(found, n.loop.clock())
	}
}

// addUnsent adds p to the pods that may need a request.
func (n *fleetNode) addUnsent(p *fleetPod, now time.Time) {
	if p.unsentSince.IsZero() {
		p.unsentSince = now
		n.unsent = append(n.unsent, p)
	}
}

// releasePod records that the containers of the pod p do not run and its cgroup is removed.
func (n *fleetNode) releasePod(p *loopPod) {
	if found := n.pods[p.id.UID]; found != nil {
		found.released = true
		n.addUnsent(found, n.loop.clock())
	}
}

// removePod deletes the data of a pod that the Loop has removed.
func (n *fleetNode) removePod(p *loopPod) { delete(n.pods, p.id.UID) }

// recordEvent passes an event of a pod to the hook, and to the API server.
func (n *fleetNode) recordEvent(pod cri.PodIdentity, e podevents.Event) {
	if hook := n.fleet.options.EventRecorded; hook != nil {
		hook(n.name, pod, e)
	}
	n.fleet.sendPodEvent(n, pod, e)
}

// planPods starts the requests that pods need now. It returns when to check again; zero means after a change.
func (n *fleetNode) planPods(now time.Time) (next time.Time) {
	kept := n.unsent[:0]
	for _, p := range n.unsent {
		request, recheck := p.planRequest(now)
		switch {
		case p.busy: // its result plans again
			p.unsentSince = time.Time{}
			continue
		case request != nil:
			p.busy, p.unsentSince = true, time.Time{}
			n.sendPodRequest(p, request)
			continue
		case recheck.IsZero():
			p.unsentSince = time.Time{}
			continue
		}
		kept = append(kept, p)
		next = sleep.Earlier(next, recheck)
	}
	clear(n.unsent[len(kept):])
	n.unsent = kept
	return next
}

// finish calls store with the lock of the node and the current time, after a request of the node has returned, and plans a step.
func (n *fleetNode) finish(store func(now time.Time)) {
	now := n.fleet.clock.now()
	n.mu.Lock()
	store(now)
	n.mu.Unlock()
	n.fleet.wakes.wakeAt(n, now)
}

// failureLog logs the first of several failed requests in a row.
type failureLog struct {
	mu      sync.Mutex
	failing map[string]bool // by action
}

// recorder returns a function that logs the errors of an action.
func (l *failureLog) recorder(f *Fleet, action string) func(error) {
	return func(err error) { l.record(f, action, err) }
}

// record logs err, the error of an action, if the action has not failed since its last success. Nil is a success.
func (l *failureLog) record(f *Fleet, action string, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	l.mu.Lock()
	failing := l.failing[action]
	if l.failing == nil {
		l.failing = map[string]bool{}
	}
	l.failing[action] = err != nil
	l.mu.Unlock()
	switch {
	case err != nil && !failing:
		f.logger.Warn(action, "error", err)
	case err == nil && failing:
		f.logger.Info("succeeded again: " + action)
	}
}

// jitter returns d multiplied by a random factor between low and high.
func jitter(d time.Duration, low, high float64) time.Duration {
	return time.Duration(float64(d) * (low + (high-low)*rand.Float64()))
}

// hasPressure reports whether this pressure condition of the node is true.
func (n *fleetNode) hasPressure(condition corev1.NodeConditionType) bool {
	return slices.ContainsFunc(n.loop.evictor.conditions, func(c eviction.Condition) bool { return string(c) == string(condition) })
}
