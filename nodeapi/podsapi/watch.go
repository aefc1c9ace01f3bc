// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podsapi

import (
	"errors"
	"sync"

	podsv1alpha1 "k8s.io/kubelet/pkg/apis/pods/v1alpha1"
)

// errTooMany says that there are as many watchers as there may be.
var errTooMany = errors.New("too many watchers")

// watchers are those that are told about changes. The zero value has none.
type watchers struct {
	mu   sync.Mutex // guards what follows
	all  map[*watcher]bool
	told map[string]telling // by UID
}

// telling is what has been said about a pod, whether or not anybody listened.
type telling int

const (
	toldNothing telling = iota
	toldPod
	toldTerminated
)

// watcher is one stream.
type watcher struct {
	events  chan *podsv1alpha1.WatchPodsEvent // shared with other watchers: nobody writes to an event
	dropped chan struct{}                     // closed when it is too far behind
}

// add returns a new watcher, which may be so many changes behind.
func (w *watchers) add(queue, most int) (*watcher, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.all) >= most {
		return nil, errTooMany
	}
	if w.all == nil {
		w.all = make(map[*watcher]bool)
	}
	one := &watcher{events: make(chan *podsv1alpha1.WatchPodsEvent, queue), dropped: make(chan struct{})}
	w.all[one] = true
	return one, nil
}

// remove forgets a watcher, which may have been dropped before.
func (w *watchers) remove(one *watcher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.all, one)
}

// updated sends the state of a pod to all, and returns how many were dropped for it. The bytes are only made if there is
// somebody to send them to.
func (w *watchers) updated(uid string, deleting bool, pod func() ([]byte, error)) (dropped int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.told == nil {
		w.told = make(map[string]telling)
	}
	before := w.told[uid]
	if before == toldTerminated {
		return 0, nil
	}
	w.told[uid] = toldPod
	if before == toldNothing && !deleting {
		return w.send(podsv1alpha1.EventType_ADDED, pod)
	}
	return w.send(podsv1alpha1.EventType_MODIFIED, pod)
}

// removed sends DELETED to all, unless that was done before. If the pod is still wanted, it is remembered, and nothing more is
// sent about it.
func (w *watchers) removed(uid string, wanted bool, pod func() ([]byte, error)) (dropped int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.told[uid]
	switch {
	case !wanted:
		delete(w.told, uid)
	case w.told == nil:
		w.told = map[string]telling{uid: toldTerminated}
	default:
		w.told[uid] = toldTerminated
	}
	if before == toldTerminated {
		return 0, nil
	}
	return w.send(podsv1alpha1.EventType_DELETED, pod)
}

// send requires the lock, so that all watchers see changes in the same order.
func (w *watchers) send(kind podsv1alpha1.EventType, pod func() ([]byte, error)) (dropped int, err error) {
	if len(w.all) == 0 {
		return 0, nil
	}
	data, err := pod()
	if err != nil {
		// None can be told this change, so that each has to begin anew.
		for one := range w.all {
			w.drop(one)
			dropped++
		}
		return dropped, err
	}
	event := &podsv1alpha1.WatchPodsEvent{Type: kind, Pod: data}
	for one := range w.all {
		select {
		case one.events <- event:
		default:
			w.drop(one)
			dropped++
		}
	}
	return dropped, nil
}

// drop requires the lock.
func (w *watchers) drop(one *watcher) {
	delete(w.all, one)
	close(one.dropped)
}
