// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/lifecycle/podset"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
)

// PodSet has all pods that one source lists. The same value is passed from the source through package podstore to [Reconciler.Set]:
//
//	dir.Run(ctx, func(u source.Update) {
//		err := reconciler.Set(store.Update(u.PodSet))
//		...
//	})
type PodSet struct {
	Source string // the name of the source, unique in the agent; required
	Pods   []*corev1.Pod
	// Incomplete is true if the source could not read all of its pods. Pods that the previous set had and this set lacks are terminated. Orphaned
	// pods are not terminated until the source reports a complete set.
	Incomplete bool
	// Shared is true if no other code writes to the pods after the call, so that the receiver may keep them. False: the receiver copies them.
	Shared bool
}

// source orders the calls of Set for one source.
type sourceState struct {
	slot       chan struct{} // has an element while a call is at work
	newestCall uint64        // the call whose pods count, of the one that is at work
	// reported has the hash of each pod and cause that the last call refused, of the one that is at work.
	reported map[[sha256.Size]byte]bool
}

// Set replaces what a source wants, with copies of the pods unless they are Shared. It does not wait for what becomes of them. Of two calls for
// one source at the same time the later one counts. What a call costs depends on what has changed: pods that are as
// they were are only compared.
//
// A pod that is invalid or that this version cannot run is refused, with an error that names it and the field. If the runtime has nothing of
// it, it is rejected: its phase is Failed, with the kubelet's reason and message where the kubelet rejects it too, so that its controller can
// replace it on another node. A change that a pod cannot follow is refused with an [*podapi.ImmutableError]. Where a pod of that UID runs, it
// goes on as it was, also when an earlier agent started it, until the pod is deleted. Of two pods of a set with one name or UID the first
// counts, and of two sources that want a pod of one UID the one that was first, for as long as it wants it; then its pod is taken down before
// the other's is started. Each refusal is returned once: by the first call with that pod and cause, until a call without it.
//
// A source that Options.Sources does not name is refused as a whole, as is one without a name, and every set once Run has returned.
func (r *Reconciler) Set(set PodSet) error {
	src, call, err := r.beginSet(set.Source)
	if err != nil {
		return err
	}
	src.slot <- struct{}{}
	defer func() { <-src.slot }()
	if call < src.newestCall {
		return nil // a later call came first
	}
	src.newestCall = call
	r.mu.Lock()
	merged := r.merged
	r.mu.Unlock()
	before, reported := merged.Of(set.Source)
	if reported && !merged.Contested(set.Source) && isSameSet(&before, &set) {
		src.reported = nil // there is nothing to refuse
		return nil
	}
	accepted, refusals := podset.Accept(before, podset.Set{Source: set.Source, Pods: set.Pods, Incomplete: set.Incomplete}, func(old, pod *corev1.Pod) (*corev1.Pod, error) {
		return r.acceptPod(old, pod, set.Shared)
	}) // takes as long as validation does, so with no lock held
	retainRefusedPods(&before, &accepted, set.Shared)
	refusals = append(refusals, r.commitSet(accepted)...)
	return errors.Join(r.reportRefusals(set.Source, src, refusals)...)
}

// enter checks whether a source may say anything, and gives its call a number.
func (r *Reconciler) beginSet(name string) (*sourceState, uint64, error) {
	if name == "" {
		return nil, 0, errors.New("set of a source without a name: field Source must not be empty")
	}
	if len(r.opts.Sources) > 0 && !slices.Contains(r.opts.Sources, name) {
		return nil, 0, fmt.Errorf("set of source %q: Options.Sources does not name it, but %q", name, r.opts.Sources)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.claimErr != nil {
		return nil, 0, fmt.Errorf("set of source %q: Reconciler.Run has ended: %w", name, r.claimErr)
	}
	select {
	case <-r.runReturned:
		return nil, 0, fmt.Errorf("set of source %q: Reconciler.Run has returned: make another Reconciler", name)
	default:
	}
	if !r.guard.Needed() {
		r.guard.Require("lifecycle.Reconciler", r.opts.Logger, r.reportNotRun)
	}
	src := r.sources[name]
	if src == nil {
		src = &sourceState{slot: make(chan struct{}, 1)}
		r.sources[name] = src
	}
	r.setCalls++
	return src, r.setCalls, nil
}

// same reports whether a set is what its source wants already.
func isSameSet(before *podset.Accepted, set *PodSet) bool {
	if before.Incomplete != set.Incomplete || len(before.Refused) > 0 || len(before.Pods) != len(set.Pods) {
		return false
	}
	for i, pod := range set.Pods {
		if pod == nil || before.Pods[i] != pod && !podapi.Equal(before.Pods[i], pod) {
			return false
		}
	}
	return true
}

// acceptPod returns what a pod is to be from now on: what it is already, or nothing, or what was given, copied unless it is shared.
func (r *Reconciler) acceptPod(old, pod *corev1.Pod, shared bool) (*corev1.Pod, error) {
	valid := old != nil && podapi.Equal(&old.ObjectMeta, &pod.ObjectMeta) && podapi.Equal(&old.Spec, &pod.Spec)
	if old == pod || valid && podapi.Equal(&old.Status, &pod.Status) {
		return old, nil
	}
	if !shared {
		pod = pod.DeepCopy()
	}
	if valid {
		return pod, nil
	}
	if err := r.podCheck(pod); err != nil {
		if unfit, ok := errors.AsType[*podCheckError](err); ok && old != nil {
			err = unfit.err // the pod goes on as it was
		}
		return withDeletion(old, pod), err
	}
	if old == nil {
		return pod, nil
	}
	was, is := old.DeepCopy(), pod.DeepCopy()
	podapi.Default(was) // an agent of an earlier version may have kept it, which knew fewer defaults
	podapi.Default(is)  // an API server of another version may know fewer
	if err := podapi.ValidateUpdate(was, is); err != nil {
		return withDeletion(old, pod), err
	}
	return pod, nil
}

// withDeletion returns a pod as it was before an update that is refused: that it is deleted, and with how much time, holds all the same.
func withDeletion(old, pod *corev1.Pod) *corev1.Pod {
	if old == nil || pod.DeletionTimestamp == nil || old.DeletionTimestamp.Equal(pod.DeletionTimestamp) &&
		podapi.Equal(&old.DeletionGracePeriodSeconds, &pod.DeletionGracePeriodSeconds) {
		return old
	}
	old = old.DeepCopy()
	old.DeletionTimestamp, old.DeletionGracePeriodSeconds = pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds
	return old
}

// commit makes a set the one of its source, and returns a refusal for each UID that is another source's.
func (r *Reconciler) commitSet(accepted podset.Accepted) (refusals []podset.Refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.merged, refusals = r.merged.With(accepted)
	// Before the next call: a pod that is listed again by then is restarted, as it was removed in between.
	r.updateWorkers(r.desiredPods())
	r.signalWorkers()
	return refusals
}

// wanted returns what the sources want together. The lock is held.
func (r *Reconciler) desiredPods() *podset.Merge {
	if r.draining {
		return podset.Nothing()
	}
	return r.merged
}
