// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/resize"
	"github.com/seed81659283/nodeagent/internal/lifecycle/resizequeue"
	"github.com/seed81659283/nodeagent/internal/sleep"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// deferredResizes holds the in-place pod resizes that the node had no capacity for when they were last decided.
type deferredResizes struct {
	signal chan struct{} // a resize was decided, or a pod may have released resources

	mu            sync.Mutex                // guards the fields below
	byUID         map[string]deferredResize // by pod UID
	epoch         uint64                    // the current epoch of the resizequeue.Queue
	queueOutdated bool                      // no resize was deferred for a while, so the queue has not observed the pods
}

// deferredResize is a deferred resize: the pod with its requested resources, and the queue's epoch before the decision.
type deferredResize struct {
	pod   *corev1.Pod
	epoch uint64
}

func newDeferredResizes() *deferredResizes {
	return &deferredResizes{signal: make(chan struct{}, 1), byUID: map[string]deferredResize{}}
}

// currentEpoch returns the number of the last observation of all pods by the retry queue. A worker reads it before it decides
// about a resize, so that the queue can find out whether resources were released after the decision.
func (d *deferredResizes) currentEpoch() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.epoch
}

// addResize records that the resize of the pod is deferred, and wakes the retry loop if it has changed.
func (d *deferredResizes) addResize(uid string, deferred deferredResize) {
	d.mu.Lock()
	changed := d.byUID[uid] != deferred
	d.byUID[uid] = deferred
	d.mu.Unlock()
	if changed {
		d.signalRetry()
	}
}

// removeResize records that the resize of the pod is not deferred any more, and wakes the retry loop.
func (d *deferredResizes) removeResize(uid string) {
	d.mu.Lock()
	_, found := d.byUID[uid]
	delete(d.byUID, uid)
	d.queueOutdated = d.queueOutdated || found && len(d.byUID) == 0
	d.mu.Unlock()
	if found {
		d.signalRetry()
	}
}

// podsChanged signals the retry loop if a resize is deferred: a pod may have released resources.
func (d *deferredResizes) podsChanged() {
	d.mu.Lock()
	waits := len(d.byUID) > 0
	d.mu.Unlock()
	if waits {
		d.signalRetry()
	}
}

func (d *deferredResizes) signalRetry() {
	sleep.Wake(d.signal)
}

// retryDeferred wakes the workers of pods with a deferred resize whenever another pod has released resources, until ctx ends.
// Source: RetryPendingResizes in pkg/kubelet/allocation/allocation_manager.go.
func (r *Reconciler) retryDeferred(ctx context.Context) {
	var queue resizequeue.Queue
	for {
		at := r.wakeDeferred(&queue)
		var due <-chan time.Time
		if !at.IsZero() {
			due = time.After(time.Until(at))
		}
		select {
		case <-ctx.Done():
			return
		case <-r.deferred.signal:
		case <-due:
		}
	}
}

// wakeDeferred wakes the workers whose deferred resizes must be decided now. It returns the time of the next call, or the zero time if the next call comes after a signal.
func (r *Reconciler) wakeDeferred(queue *resizequeue.Queue) (at time.Time) {
	d, now := r.deferred, time.Now()
	d.mu.Lock()
	waits, reset := len(d.byUID) > 0, d.queueOutdated
	d.queueOutdated = false
	d.mu.Unlock()
	if reset {
		queue.Reset()
	}
	if !waits {
		return time.Time{}
	}
	active, _ := r.Active()
	epoch := queue.Observe(now, active)
	d.mu.Lock()
	d.epoch = epoch
	d.mu.Unlock()
	wake, at := queue.Next(now, r.listDeferred())
	r.wakeWorkers(wake...)
	return at
}

// listDeferred returns the deferred resizes with the pods' allocated resources, as input of the retry queue.
func (r *Reconciler) listDeferred() (resizes []resizequeue.Resize) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deferred.mu.Lock()
	defer r.deferred.mu.Unlock()
	for uid, judged := range r.deferred.byUID {
		w := r.workers[uid]
		if w == nil {
			continue
		}
		z := resizequeue.Resize{Pod: judged.pod, Allocated: w.shared.currentAllocation().Apply(judged.pod), Epoch: judged.epoch}
		if st := w.shared.publishedStatus(); st != nil {
			if c := podstatus.FindCondition(st.Conditions, corev1.PodResizePending); c != nil {
				z.Since = c.LastTransitionTime.Time
			}
		}
		resizes = append(resizes, z)
	}
	return resizes
}

// decideResize decides about a resize of the pod, and records whether it is deferred.
func (w *worker) decideResize(pod *corev1.Pod, observed cri.Pod, deleted bool) {
	epoch := w.r.deferred.currentEpoch()
	if w.exec.Resizer.Decide(pod, observed, deleted); !deleted && w.exec.Resizer.IsDeferred() {
		w.r.deferred.addResize(w.id.UID, deferredResize{pod, epoch})
	} else {
		w.r.deferred.removeResize(w.id.UID)
	}
}

// storeAllocation stores the resources allocated to the pod. If they have changed, it wakes the worker, because the decision may
// have been made outside of a sync.
func (w *worker) storeAllocation(allocation *resize.Allocation) {
	resized := w.shared.currentAllocation() != nil
	if w.shared.setAllocation(allocation); resized {
		w.mailbox.Wake()
	}
}
