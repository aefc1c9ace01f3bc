// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podsapi

import (
	"errors"
	"sync"

	podsv1alpha1 "k8s.io/kubelet/pkg/apis/pods/v1alpha1"
)

// errTooManyWatchers is the error of addWatcher if the limit of watchers is reached.
var errTooManyWatchers = errors.New("too many watchers")

// watchers has the open WatchPods calls, and the kind of the last event per pod. The zero value is ready for use.
type watchers struct {
	mu   sync.Mutex // guards the fields below
	all  map[*watcher]bool
	sent map[string]sentState // by pod UID
}

// sentState is the kind of the last event of a pod. It is set even if there are no watchers.
type sentState int

const (
	sentNothing sentState = iota
	sentPod
	sentTerminated
)

// watcher has the queued events of an open WatchPods call.
type watcher struct {
	events  chan *podsv1alpha1.WatchPodsEvent // shared with other watchers, and read only
	dropped chan struct{}                     // closed when the watcher is dropped
}

// addWatcher adds a watcher whose queue holds up to queueLength events. It returns an error if there are maxWatchers
// already.
func (w *watchers) addWatcher(queueLength, maxWatchers int) (*watcher, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.all) >= maxWatchers {
		return nil, errTooManyWatchers
	}
	if w.all == nil {
		w.all = make(map[*watcher]bool)
	}
	added := &watcher{events: make(chan *podsv1alpha1.WatchPodsEvent, queueLength), dropped: make(chan struct{})}
	w.all[added] = true
	return added, nil
}

// removeWatcher removes a watcher after its WatchPods call has ended. It does nothing if the watcher was dropped before.
func (w *watchers) removeWatcher(removed *watcher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.all, removed)
}

// sendUpdate sends ADDED or MODIFIED for a pod to all watchers, and returns the number of slow watchers that it has dropped.
func (w *watchers) sendUpdate(uid string, deleting bool, encode func() ([]byte, error)) (dropped int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sent == nil {
		w.sent = make(map[string]sentState)
	}
	before := w.sent[uid]
	if before == sentTerminated {
		return 0, nil
	}
	w.sent[uid] = sentPod
	if before == sentNothing && !deleting { // a pod that is being deleted is never new to watchers
		return w.broadcast(podsv1alpha1.EventType_ADDED, encode)
	}
	return w.broadcast(podsv1alpha1.EventType_MODIFIED, encode)
}

// sendDeleted sends DELETED for a pod to all watchers once, and returns the number of slow watchers that it has dropped.
func (w *watchers) sendDeleted(uid string, listed bool, encode func() ([]byte, error)) (dropped int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.sent[uid]
	switch {
	case !listed: // otherwise the source may send later updates of the pod, which are not sent
		delete(w.sent, uid)
	case w.sent == nil:
		w.sent = map[string]sentState{uid: sentTerminated}
	default:
		w.sent[uid] = sentTerminated
	}
	if before == sentTerminated {
		return 0, nil
	}
	return w.broadcast(podsv1alpha1.EventType_DELETED, encode)
}

// broadcast sends an event to all watchers, and drops watchers whose queue is full. The caller holds mu, which keeps the order
// of events.
func (w *watchers) broadcast(kind podsv1alpha1.EventType, encode func() ([]byte, error)) (dropped int, err error) {
	if len(w.all) == 0 {
		return 0, nil
	}
	data, err := encode()
	if err != nil {
		// All watchers miss this event and must start a new watch.
		for one := range w.all {
			w.dropWatcher(one)
			dropped++
		}
		return dropped, err
	}
	event := &podsv1alpha1.WatchPodsEvent{Type: kind, Pod: data}
	for one := range w.all {
		select {
		case one.events <- event:
		default:
			w.dropWatcher(one)
			dropped++
		}
	}
	return dropped, nil
}

// dropWatcher removes a watcher and ends its WatchPods call. The caller holds mu.
func (w *watchers) dropWatcher(dropped *watcher) {
	delete(w.all, dropped)
	close(dropped.dropped)
}
