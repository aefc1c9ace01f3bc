// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
)

// Active returns the admitted pods with the resources allocated to them, which count against the capacity of the node.
// complete is true once every source has reported all of its pods. Right after a restart of the agent, the result includes
// each pod whose record is not read yet: the previous agent process may have admitted it.
func (r *Reconciler) Active() (pods []*corev1.Pod, complete bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	desired := r.desiredPods()
	for pod := range desired.Pods() {
		switch w := r.workers[string(pod.UID)]; {
		case w == nil:
			pods = append(pods, pod)
		case w.shared.reservesResources():
			pods = append(pods, w.applyAllocation(pod))
		}
	}
	return pods, desired.IsComplete()
}

// applyAllocation returns the worker's pod with the allocated resources as its requests and limits.
func (w *worker) applyAllocation(listed *corev1.Pod) *corev1.Pod {
	if pod, _ := w.mailbox.Desired(); pod != nil {
		return w.shared.currentAllocation().Apply(pod)
	}
	// The worker tears down an orphaned pod.
	return listed
}

// PodState is the state of one pod that a [Reconciler] manages.
type PodState struct {
	Pod     cri.PodIdentity
	Spec    *corev1.Pod       // the newest version from its source, which the caller must not change; nil: the pod is orphaned
	Status  *corev1.PodStatus // the last status passed to Hooks.StatusChanged, which the caller must not change; nil: none yet
	Deleted bool              // no source lists the pod any more, and it is being torn down
	// Admitted is true if the pod has passed admission on this node, in this agent process or a previous one, and was not
	// rejected.
	Admitted bool
	Evicted  bool // [Reconciler.Evict] was called for the pod, possibly in a previous process: the pod terminates, has terminated or is temporarily evicted
}

// Pods returns a snapshot of every pod that a source lists or that is being torn down, sorted by UID. Hooks.StatusChanged
// reports later changes. A pod just passed to [Reconciler.Set] is included once Run manages it.
func (r *Reconciler) Pods() []PodState {
	r.mu.Lock()
	defer r.mu.Unlock()
	pods := make([]PodState, 0, len(r.workers))
	for _, uid := range slices.Sorted(maps.Keys(r.workers)) {
		pods = append(pods, r.workers[uid].podState())
	}
	return pods
}

// Pod returns the state of the pod with the given UID. ok is false if no source lists the pod and it is not being torn down.
func (r *Reconciler) Pod(uid string) (state PodState, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.workers[uid]; w != nil {
		return w.podState(), true
	}
	return state, false
}

// PodStatus returns the identity and the last published status of a pod. status is nil before the first publication, and
// must not be changed. ok is false if the pod is not managed. The method implements podevents.Pods.
func (r *Reconciler) PodStatus(uid string) (pod cri.PodIdentity, status *corev1.PodStatus, ok bool) {
	state, ok := r.Pod(uid)
	return state.Pod, state.Status, ok
}

// podState returns the state of the worker's pod for [Reconciler.Pods]. The caller holds Reconciler.mu.
func (w *worker) podState() PodState {
	pod, deleted := w.mailbox.Desired()
	known := w.record.Get()
	evicted := known.Eviction != nil // only an admitted pod is evicted
	return PodState{
		Pod: w.id, Spec: pod, Status: w.shared.publishedStatus(), Deleted: deleted, Evicted: evicted,
		Admitted: known.Rejection == nil && (evicted || w.shared.admissionState() == admitted),
	}
}

// MayRun reports whether a container of the pod may be running now or start later. It returns false only if no source lists
// the pod, no worker tears it down, and the runtime has no pod with this UID. If the runtime cannot be listed, MayRun
// returns true.
func (r *Reconciler) MayRun(uid string) bool {
	r.mu.Lock()
	desired, known := r.desiredPods(), r.workers[uid] != nil
	r.mu.Unlock()
	if known || desired.Pod(uid) != nil {
		return true
	}
	pods, err := r.observer.Pods()
	return err != nil || slices.ContainsFunc(pods, func(p cri.Pod) bool { return p.UID == uid })
}
