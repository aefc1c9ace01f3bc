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
	signal chan struct{} // receives when a resize was decided, or a pod may have released resources

	mu            sync.Mutex                // guards the fields below
	byUID         map[string]deferredResize // by pod UID
	epoch         uint64                    // number of releases of resources that the resizequeue.Queue has observed
	queueOutdated bool                      // no resize was deferred for a while, so the resizequeue.Queue has outdated pods
}

// deferredResize is the pod of a deferred resize with its requested resources, and the value of deferredResizes.epoch before the
// decision.
type deferredResize struct {
	pod   *corev1.Pod
	epoch uint64
}

func newDeferredResizes() *deferredResizes {
	return &deferredResizes{signal: make(chan struct{}, 1), byUID: map[string]deferredResize{}}
}

// currentEpoch returns the number of releases of resources that the retry loop has observed.
func (d *deferredResizes) currentEpoch() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	// If the number grows after a decision about a resize, the retry loop makes the worker decide again.
	return d.epoch
}

// addResize records that the pod with this UID waits for capacity for a resize. If the record changes, addResize wakes the
// loop that retries deferred resizes.
func (d *deferredResizes) addResize(uid string, deferred deferredResize) {
	d.mu.Lock()
	changed := d.byUID[uid] != deferred
	d.byUID[uid] = deferred
	d.mu.Unlock()
	if changed {
		d.signalRetry()
	}
}

// removeResize deletes the record of a deferred resize of the pod with this UID. If there was a record, removeResize wakes
// the loop that retries deferred resizes.
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

// podsChanged wakes the retry loop if a resize is deferred, because a pod may have released resources.
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

// retryDeferred wakes workers with a deferred resize whenever a pod has released resources. Source: RetryPendingResizes in
// pkg/kubelet/allocation/allocation_manager.go.
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

// wakeDeferred wakes the workers that must decide about their deferred resize now. at is the time of the next call, zero for
// none.
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

// listDeferred returns all deferred resizes as input for the retry queue.
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

// decideResize decides whether the node has the capacity for the requested resources, and records a deferred resize for
// later.
func (w *worker) decideResize(pod *corev1.Pod, observed cri.Pod, deleted bool) {
	epoch := w.r.deferred.currentEpoch()
	if w.exec.Resizer.Decide(pod, observed, deleted); !deleted && w.exec.Resizer.IsDeferred() {
		w.r.deferred.addResize(w.id.UID, deferredResize{pod, epoch})
	} else {
		w.r.deferred.removeResize(w.id.UID)
	}
}

// storeAllocation stores the resources allocated to the pod. If the pod had an allocation before, storeAllocation wakes the
// worker, which then applies the new allocation.
func (w *worker) storeAllocation(allocation *resize.Allocation) {
	resized := w.shared.currentAllocation() != nil
	if w.shared.setAllocation(allocation); resized {
		w.mailbox.Wake()
	}
}
