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

// PodSet has all pods of one source. A source passes it to [Reconciler.Set], usually through package podstore:
//
//	dir.Run(ctx, func(u source.Update) {
//		err := reconciler.Set(store.Update(u.PodSet))
//		...
//	})
type PodSet struct {
	Source string // the name of the source, unique in the agent; required
	Pods   []*corev1.Pod
	// Incomplete is true if the source could not read all of its pods. A pod of the previous set that this set lacks is
	// terminated nevertheless. Orphaned pods are kept until the source passes a complete set.
	Incomplete bool
	// Shared is true if no code changes the pods after the call, so that the receiver may keep them. If it is false, the receiver
	// copies them.
	Shared bool
}

// sourceState is the state of one source between its calls of Set.
type sourceState struct {
	slot       chan struct{} // semaphore with one slot: one call runs at a time
	newestCall uint64        // number of the newest call that has run; used by the running call
	// reported has a hash of each refused pod and its error in the last call; used by the running call.
	reported map[[sha256.Size]byte]bool
}

// Set replaces the pods of one source. It copies the pods unless set.Shared is true, and returns before they are started or
// terminated. If calls for one source are concurrent, the latest wins. Unchanged pods cost only a comparison.
//
// Set refuses a pod that is invalid or needs an unsupported feature, with an error that names the field. If the runtime has
// no container or sandbox of the pod, the pod fails with the kubelet's reason, so that its controller can replace it.
// Otherwise it continues unchanged. A change that cannot be applied to a running pod is refused with a
// [*podapi.ImmutableError].
//
// If two pods in a set have the same name or UID, the first is used. If two sources list the same UID, the first source
// keeps it until it no longer lists the pod. That pod is torn down before the pod of the second source starts. The error has
// a [RefusedError] for each refused pod. Later calls omit this error as long as the pod and the cause are unchanged.
//
// Set returns an error for an empty source name, for a source that is not in Options.Sources, and after Run has returned.
func (r *Reconciler) Set(set PodSet) error {
	src, call, err := r.beginSet(set.Source)
	if err != nil {
		return err
	}
	src.slot <- struct{}{}
	defer func() { <-src.slot }()
	if call < src.newestCall {
		return nil // a later call has already run
	}
	src.newestCall = call
	r.mu.Lock()
	merged := r.merged
	r.mu.Unlock()
	before, reported := merged.LastSet(set.Source)
	if reported && !merged.IsContested(set.Source) && isSameSet(&before, &set) {
		src.reported = nil // no pod is refused
		return nil
	}
	accepted, refusals := podset.Accept(before, podset.Set{Source: set.Source, Pods: set.Pods, Incomplete: set.Incomplete}, func(old, pod *corev1.Pod) (*corev1.Pod, error) {
		return r.acceptPod(old, pod, set.Shared)
	}) // validation is slow, so no lock is held
	retainRefusedPods(&before, &accepted, set.Shared)
	refusals = append(refusals, r.commitSet(accepted)...)
	return errors.Join(r.reportRefusals(set.Source, src, refusals)...)
}

// beginSet returns the state of the named source, created on first use, and the number of this call over all sources. It returns
// an error if the source must not call Set.
func (r *Reconciler) beginSet(name string) (state *sourceState, call uint64, err error) {
	if name == "" {
		return nil, 0, errors.New("set of a source without a name: field Source must not be empty")
	}
	if len(r.opts.Sources) > 0 && !slices.Contains(r.opts.Sources, name) {
		return nil, 0, fmt.Errorf("set of source %q: Options.Sources does not name it, but %q", name, r.opts.Sources)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.claimErr != nil {
		return nil, 0, fmt.Errorf("set of source %q: Reconciler.Run has returned: %w", name, r.claimErr)
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

// isSameSet reports whether the set equals the previous one of its source.
func isSameSet(previous *podset.Accepted, set *PodSet) bool {
	// A refused pod is checked again.
	if previous.Incomplete != set.Incomplete || len(previous.Refused) > 0 || len(previous.Pods) != len(set.Pods) {
		return false
	}
	for i, pod := range set.Pods {
		if pod == nil || previous.Pods[i] != pod && !podapi.Equal(previous.Pods[i], pod) {
			return false
		}
	}
	return true
}

// acceptPod checks a pod that a source lists, and returns the version to run. The running version is old, nil for a new pod. If
// the pod is refused, the result is old with the pod's deletion timestamp.
func (r *Reconciler) acceptPod(old, pod *corev1.Pod, shared bool) (*corev1.Pod, error) {
	valid := old != nil && podapi.Equal(&old.ObjectMeta, &pod.ObjectMeta) && podapi.Equal(&old.Spec, &pod.Spec)
	if old == pod || valid && podapi.Equal(&old.Status, &pod.Status) {
		return old, nil
	}
	// The source does not change shared pods (PodSet.Shared).
	if !shared {
		pod = pod.DeepCopy()
	}
	if valid {
		return pod, nil
	}
	if err := r.podCheck(pod); err != nil {
		if unfit, ok := errors.AsType[*podCheckError](err); ok && old != nil {
			err = unfit.err // the pod continues unchanged
		}
		return withDeletion(old, pod), err
	}
	if old == nil {
		return pod, nil
	}
	was, is := old.DeepCopy(), pod.DeepCopy()
	podapi.Default(was) // a previous agent version, with fewer defaults, may have stored it
	podapi.Default(is)  // the API server may apply fewer defaults
	if err := podapi.ValidateUpdate(was, is); err != nil {
		return withDeletion(old, pod), err
	}
	return pod, nil
}

// withDeletion returns old with the deletion timestamp and grace period of pod, so that a deletion takes effect even if the
// changed spec is refused.
func withDeletion(old, pod *corev1.Pod) *corev1.Pod {
	if old == nil || pod.DeletionTimestamp == nil || old.DeletionTimestamp.Equal(pod.DeletionTimestamp) &&
		podapi.Equal(&old.DeletionGracePeriodSeconds, &pod.DeletionGracePeriodSeconds) {
		return old
	}
	old = old.DeepCopy()
	old.DeletionTimestamp, old.DeletionGracePeriodSeconds = pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds
	return old
}

// commitSet stores the accepted pods of a source, and updates the workers. It returns a refusal for each pod whose UID
// another source already lists.
func (r *Reconciler) commitSet(accepted podset.Accepted) (refusals []podset.Refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.merged, refusals = r.merged.With(accepted)
	// updateWorkers runs before the next Set call: a pod that a call drops and the next call lists again is restarted.
	r.updateWorkers(r.desiredPods())
	r.signalWorkers()
	return refusals
}

// desiredPods returns the merged pods of all sources. After Drain was called, it returns no pods. The caller holds
// Reconciler.mu.
func (r *Reconciler) desiredPods() *podset.Merge {
	if r.draining {
		return podset.EmptyMerge()
	}
	return r.merged
}
