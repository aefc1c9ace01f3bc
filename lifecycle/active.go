// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
)

// Active returns the pods whose requests count, with the resources that they are allocated: those that are wanted and admitted,
// or may be, are not held back and have not terminated. It is complete when every source has said all that it wants.
func (r *Reconciler) Active() (pods []*corev1.Pod, complete bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	wanted := r.desiredPods()
	for pod := range wanted.Pods() {
		switch w := r.workers[string(pod.UID)]; {
		case w == nil:
			pods = append(pods, pod)
		case w.shared.reservesResources():
			pods = append(pods, w.applyAllocation(pod))
		}
	}
	return pods, wanted.Complete()
}

// allocatedPod returns the pod with the resources that are allocated to it. listed is the pod of its UID that a source lists: it is returned
// while an orphaned pod of the UID is taken down.
func (w *worker) applyAllocation(listed *corev1.Pod) *corev1.Pod {
	if pod, _ := w.mailbox.Wanted(); pod != nil {
		return w.shared.currentAllocation().Apply(pod)
	}
	return listed
}

// PodState is a pod that a [Reconciler] works on.
type PodState struct {
	Pod     cri.PodIdentity
	Spec    *corev1.Pod       // as its source gave it last; nil: the pod is orphaned. It must not be written to
	Status  *corev1.PodStatus // as Hooks.Status was told it last; nil: nothing yet. It must not be written to
	Deleted bool              // no source wants it any more, and it is being taken down
	// Admitted says that the pod may run on this node, or has: nobody rejected it, and it does not wait for admission.
	Admitted bool
	Evicted  bool // [Reconciler.Evict] was called for it, be it by an agent before this one: it terminates, has terminated or is held back
}

// Pods returns the pods that are wanted or being taken down, by UID: the level, where Hooks.Status is the edge. A pod whose
// worker has yet to begin is not among them.
func (r *Reconciler) Pods() []PodState {
	r.mu.Lock()
	defer r.mu.Unlock()
	pods := make([]PodState, 0, len(r.workers))
	for _, uid := range slices.Sorted(maps.Keys(r.workers)) {
		pods = append(pods, r.workers[uid].podState())
	}
	return pods
}

// Pod returns the one of [Reconciler.Pods] that has a UID, and whether there is one.
func (r *Reconciler) Pod(uid string) (state PodState, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.workers[uid]; w != nil {
		return w.podState(), true
	}
	return state, false
}

// PodStatus returns the identity of the pod of a UID and its last reported status, which is nil before the first report. The caller must not write
// to the status. It implements podevents.Pods.
func (r *Reconciler) PodStatus(uid string) (pod cri.PodIdentity, status *corev1.PodStatus, ok bool) {
	state, ok := r.Pod(uid)
	return state.Pod, state.Status, ok
}

// podState is what others are told of the pod. The Reconciler's lock is held, so that it is a worker of it still.
func (w *worker) podState() PodState {
	pod, deleted := w.mailbox.Wanted()
	known := w.record.Get()
	evicted := known.Eviction != nil // only a pod that was admitted is
	return PodState{
		Pod: w.id, Spec: pod, Status: w.shared.publishedStatus(), Deleted: deleted, Evicted: evicted,
		Admitted: known.Rejection == nil && (evicted || w.shared.admissionState() == admitted),
	}
}

// MayRun reports whether anything of a pod runs or may be about to run: a pod that is wanted or still terminating, or one that
// only the runtime knows, whoever made it. As long as the runtime has not been listed to the end, any pod may.
func (r *Reconciler) MayRun(uid string) bool {
	r.mu.Lock()
	wanted, known := r.desiredPods(), r.workers[uid] != nil
	r.mu.Unlock()
	if known || wanted.Pod(uid) != nil {
		return true
	}
	pods, err := r.observer.Pods()
	return err != nil || slices.ContainsFunc(pods, func(p cri.Pod) bool { return p.UID == uid })
}
