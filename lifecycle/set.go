// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
)

// PodSet is all pods that one source wants.
type PodSet struct {
	Source string
	Pods   []*corev1.Pod
	// Incomplete says that the source could not read all of its pods. Pods that it named before and does not name
	// now are taken down all the same; orphaned pods are left alone until a complete set.
	Incomplete bool
}

// RefusedError is why [Reconciler.Set] did not take a pod, or an update of one. errors.As finds each in what Set returns.
type RefusedError struct {
	Pod    cri.PodIdentity
	Source string
	Err    error // such as a [*podapi.ImmutableError]
}

// Error returns the text of the cause, which names the pod.
func (e *RefusedError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *RefusedError) Unwrap() error { return e.Err }

// refused returns the error for a pod that a source does not get.
func refused(source string, pod *corev1.Pod, err error) *RefusedError {
	return &RefusedError{
		Pod:    cri.PodIdentity{UID: string(pod.UID), Name: pod.Name, Namespace: pod.Namespace},
		Source: source, Err: err,
	}
}

// tellRefused tells the hook that a pod is refused. No lock is held.
func (r *Reconciler) tellRefused(err *RefusedError) error {
	if hook := r.opts.Hooks.Refused; hook != nil {
		hook(err)
	}
	return err
}

// wish is what a source wants. It is replaced, and never written to once it is among those of the Reconciler.
type wish struct {
	PodSet           // of accepted pods, which are the Reconciler's own copies
	refused []string // UIDs of pods that cannot be run: nothing is started for them, and what runs is not an orphan
}

// source orders the calls of Set for one source.
type source struct {
	turn  chan struct{} // has an element while a call is at work
	taken uint64        // the call whose pods count, of the one that is at work
}

// Set replaces what a source wants, with copies of the pods. It does not wait for what becomes of them. Of two calls for
// one source at the same time the later one counts. What a call costs depends on what has changed: pods that are as
// they were are only compared.
//
// A pod that is invalid or that this version cannot run is refused, with an error that names it and the field. So is a
// change that a pod cannot follow, with an [*podapi.ImmutableError]. Where a pod of that UID runs, it goes on as it was, also
// when an earlier agent started it. Of two pods of a set with one name or UID the first counts, and of two sources that
// want a pod of one UID the one that was first, for as long as it wants it; then its pod is taken down before the
// other's is started. The others are told so, at each call.
//
// A source that Options.Sources does not name is refused as a whole, and so is every set when Run has failed.
func (r *Reconciler) Set(set PodSet) error {
	src, call, err := r.enter(set.Source)
	if err != nil {
		return err
	}
	src.turn <- struct{}{}
	defer func() { <-src.turn }()
	if call < src.taken {
		return nil // a later call came first
	}
	src.taken = call
	before, contested := r.wish(set.Source)
	if !contested && before.same(&set) {
		return nil
	}
	next, errs := r.accept(&before, set)
	for _, refused := range r.commit(next) {
		errs = append(errs, r.tellRefused(refused))
	}
	return errors.Join(errs...)
}

// enter checks whether a source may say anything, and gives its call a number.
func (r *Reconciler) enter(name string) (*source, uint64, error) {
	if len(r.opts.Sources) > 0 && !slices.Contains(r.opts.Sources, name) {
		return nil, 0, fmt.Errorf("set of source %q: Options.Sources does not name it, but %q", name, r.opts.Sources)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed != nil {
		return nil, 0, fmt.Errorf("set of source %q: Reconciler.Run has ended: %w", name, r.failed)
	}
	src := r.calls[name]
	if src == nil {
		src = &source{turn: make(chan struct{}, 1)}
		r.calls[name] = src
	}
	r.called++
	return src, r.called, nil
}

// wish returns what a source wanted last, and whether another one wants one of its UIDs.
func (r *Reconciler) wish(name string) (w wish, contested bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.sources, func(s wish) bool { return s.Source == name })
	if i < 0 {
		return w, true // it is the first
	}
	return r.sources[i], r.contested[name]
}

// same reports whether a set is what is wanted already.
func (w *wish) same(set *PodSet) bool {
	if w.Incomplete != set.Incomplete || len(w.refused) > 0 || len(w.Pods) != len(set.Pods) {
		return false
	}
	for i, pod := range set.Pods {
		if pod == nil || !podapi.Equal(w.Pods[i], pod) {
			return false
		}
	}
	return true
}

// accept returns what is wanted from now on, and an error for each pod that is not among it or not as it was given. It
// takes as long as validation takes, so it is called with no lock held that others wait for.
func (r *Reconciler) accept(before *wish, set PodSet) (next wish, errs []error) {
	known := make(map[string]*corev1.Pod, len(before.Pods))
	for _, pod := range before.Pods {
		known[string(pod.UID)] = pod
	}
	next.PodSet = PodSet{Source: set.Source, Incomplete: set.Incomplete, Pods: make([]*corev1.Pod, 0, len(set.Pods))}
	named := make(map[string]bool, 2*len(set.Pods))
	for i, pod := range set.Pods {
		if pod == nil {
			errs = append(errs, fmt.Errorf("set of source %q: pod %d is nil", set.Source, i))
			continue
		}
		name, uid := pod.Namespace+"/"+pod.Name, string(pod.UID)
		if named[name] || named[uid] {
			errs = append(errs, r.tellRefused(refused(set.Source, pod,
				fmt.Errorf("pod %s: another pod of the set has its name, or its UID %s", name, uid))))
			continue
		}
		named[name], named[uid] = true, uid != ""
		accepted, err := r.acceptPod(known[uid], pod)
		if err != nil {
			errs = append(errs, r.tellRefused(refused(set.Source, pod, err)))
		}
		switch {
		case accepted != nil:
			next.Pods = append(next.Pods, accepted)
		case uid != "":
			next.refused = append(next.refused, uid)
		}
	}
	return next, errs
}

// acceptPod returns what a pod is to be from now on: what it is already, or a copy of what was given, or nothing.
func (r *Reconciler) acceptPod(old, pod *corev1.Pod) (*corev1.Pod, error) {
	if old == nil {
		pod = pod.DeepCopy()
		if err := r.check(pod); err != nil {
			return nil, err
		}
		return pod, nil
	}
	valid := podapi.Equal(&old.ObjectMeta, &pod.ObjectMeta) && podapi.Equal(&old.Spec, &pod.Spec)
	if valid && podapi.Equal(&old.Status, &pod.Status) {
		return old, nil
	}
	pod = pod.DeepCopy()
	if valid {
		return pod, nil
	}
	if err := r.check(pod); err != nil {
		return old, err
	}
	defaulted := old.DeepCopy()
	podapi.Default(defaulted) // an agent of an earlier version may have kept it, which knew fewer defaults
	if err := podapi.ValidateUpdate(defaulted, pod); err != nil {
		return old, err
	}
	return pod, nil
}

// commit makes a wish the one of its source, and returns an error for each UID that is another source's.
func (r *Reconciler) commit(next wish) []*RefusedError {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.IndexFunc(r.sources, func(s wish) bool { return s.Source == next.Source }); i >= 0 {
		r.sources[i] = next
	} else {
		r.sources = append(r.sources, next)
	}
	errs := r.claimUIDs(next.Source)
	r.wake()
	return errs
}

// claimUIDs finds out whose each UID is: its source's for as long as that wants it, then that of the first other one. It
// returns an error for each that a source wants and does not get.
func (r *Reconciler) claimUIDs(name string) (errs []*RefusedError) {
	before := r.claims
	r.claims, r.contested = make(map[string]string, len(before)), map[string]bool{}
	for _, s := range r.sources { // those that keep what they have
		for _, pod := range s.Pods {
			if uid := string(pod.UID); before[uid] == s.Source {
				r.claims[uid] = s.Source
			}
		}
	}
	for _, s := range r.sources {
		for _, pod := range s.Pods {
			uid := string(pod.UID)
			holder, claimed := r.claims[uid]
			switch {
			case !claimed:
				r.claims[uid] = s.Source
			case holder != s.Source:
				r.contested[s.Source] = true
				if s.Source == name {
					errs = append(errs, refused(name, pod, fmt.Errorf(
						"pod %s/%s: source %q wants its UID %s, which is a pod's of source %q; it waits until that is removed",
						pod.Namespace, pod.Name, name, uid, holder)))
				}
			}
		}
	}
	return errs
}

// refused returns the UIDs of pods that are wanted and cannot be run, and that nobody else has.
func (r *Reconciler) refused() map[string]bool {
	uids := map[string]bool{}
	if r.draining {
		return uids
	}
	for _, s := range r.sources {
		for _, uid := range s.refused {
			uids[uid] = true
		}
	}
	return uids
}
