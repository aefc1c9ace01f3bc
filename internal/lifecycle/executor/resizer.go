// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/poddir"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podview"
	"github.com/seed81659283/nodeagent/internal/lifecycle/resize"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// Resizer changes the resources of the containers of one pod while they run, and knows what they have. What is allocated to the
// pod and what the runtime was told is in the pod's record; an agent that has none reads the containers anew, and at worst tells
// the runtime once more what it knows.
type Resizer struct {
	*Reporter
	record *poddir.Recorder
	// Granted is called with what is allocated to the pod, before another pod is granted more. It is set before the first use.
	Granted func(*resize.Allocation)

	// Of the goroutine of the worker alone.
	now        resize.Decision  // as of the last look
	of         *corev1.Pod      // that was looked at
	key        string           // of the resources that are allocated to the pod
	keyOf      *corev1.Pod      // that it was made from
	generation int64            // of the spec that first had them
	reported   resizeConditions // that events tell of

	mu        sync.Mutex              // guards all below
	allocated *resize.Allocation      // nil: the pod is not admitted, or no record says what it was granted
	told      map[string]cgroups.Size // to the runtime, by container ID
	sized     string                  // key of the resources that the pod's cgroup is for; empty: not known
	err       error                   // of the last attempt
	errText   string                  // that an event tells of
}

// Recall takes up what an earlier agent knew.
func (z *Resizer) Recall(known poddir.Record) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.sized, z.allocated = known.Sized, known.Allocated
	for id, note := range known.Sizes {
		if size, ok := resize.ParseSize(note); ok {
			z.tell(id, size)
		}
	}
	if known.Status != nil {
		z.recallConditions(known.Status.Conditions)
	}
}

// Allocation returns what is allocated to the pod, or nil where that is not known. It must not be written to.
func (z *Resizer) Allocation() *resize.Allocation {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.allocated
}

// setAllocation notes what is allocated to the pod.
func (z *Resizer) setAllocation(a *resize.Allocation) {
	z.mu.Lock()
	z.allocated = a
	z.mu.Unlock()
	if z.Granted != nil {
		z.Granted(a)
	}
}

// tell takes note of what the runtime was told.
func (z *Resizer) tell(id string, size cgroups.Size) {
	if z.told == nil {
		z.told = map[string]cgroups.Size{}
	}
	z.told[id] = size
}

// Put puts down in a record what is allocated to the pod and what the runtime was told.
func (z *Resizer) Put(now *poddir.Record) {
	z.mu.Lock()
	defer z.mu.Unlock()
	now.Allocated = z.allocated
	now.Sized, now.Sizes = z.sized, make(map[string]string, len(z.told))
	for id, size := range z.told {
		now.Sizes[id] = resize.FormatSize(size)
	}
}

// Decide decides what is to become of the resources of the pod, which is admitted, and keeps that for the actions and the
// status. What the pod is granted is allocated to it from now on.
func (z *Resizer) Decide(pod *corev1.Pod, observed cri.Pod, deleted bool) {
	if z.of != pod {
		z.now, z.of = resize.Decision{Pod: pod}, pod
	}
	if pod == nil || deleted || pod.DeletionTimestamp != nil {
		z.reported = resizeConditions{}
		return
	}
	accepted := z.judge(pod, observed)
	z.refresh(pod, observed, accepted)
	z.recordEvents(pod, accepted)
}

// IsDeferred reports whether the pod runs on without resources that its spec requests, because the node had no room for them at the last Decide.
func (z *Resizer) IsDeferred() bool {
	return z.now.Reason == corev1.PodReasonDeferred
}

// isSameDeferred reports whether pod requests the same resources as when they were deferred.
func (z *Resizer) isSameDeferred(pod *corev1.Pod) bool {
	return z.IsDeferred() && pod != nil && pod.DeletionTimestamp == nil && pod.Generation == z.of.Generation && resize.AllocationOf(z.of).Apply(pod) == pod
}

// judge decides about the resources of the pod, and reports whether it is granted others than before.
func (z *Resizer) judge(pod *corev1.Pod, observed cri.Pod) (accepted bool) {
	state := z.state(pod, observed)
	z.now = resize.Decide(state)
	accepted = z.now.Resizes()
	if accepted && z.node.AdmitResize != nil {
		z.node.resizing.Lock() // or two pods would be granted the same room
		defer z.node.resizing.Unlock()
		if err := z.node.AdmitResize(pod); err != nil {
			z.now, accepted = refused(&z.now, err), false
		}
	}
	if state.Allocated == nil || accepted {
		z.setAllocation(resize.AllocationOf(z.now.Pod))
	}
	if accepted {
		z.Note(z.record, z.Put) // before it is acted upon
	}
	return accepted
}

// refresh brings what is kept beside a decision up to date.
func (z *Resizer) refresh(pod *corev1.Pod, observed cri.Pod, accepted bool) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.now.Pod != z.keyOf {
		first := z.keyOf == nil
		z.keyOf = z.now.Pod
		if key := resourceKey(z.keyOf); key != z.key {
			z.key = key
			if !first || accepted || z.generation == 0 { // the first look may be at what an earlier agent was at
				z.generation, z.err = pod.Generation, nil
			}
		}
	}
	if z.sized == "" && !z.now.Changed {
		z.sized = z.key
	}
	if !z.now.InProgress && len(z.now.Containers) == 0 && (z.node.Cgroups == nil || z.isSized(observed)) {
		z.err = nil
	}
	if z.now.Generation = z.generation; z.err != nil {
		z.now.Error = z.err.Error()
	}
}

// refused returns the decision for a resize that the node has no room for.
func refused(d *resize.Decision, err error) resize.Decision {
	why, ok := errors.AsType[*podstatus.Rejection](err)
	switch {
	case !ok:
		return d.Deferred(err.Error())
	case why.Reason == corev1.PodReasonInfeasible:
		return d.Infeasible(why.Message)
	default:
		deferred := d.Deferred(why.Message)
		deferred.Cause = why.StatusReason()
		return deferred
	}
}

// Decision returns what was decided last about the resources of a pod. One that has changed since is decided about anew, but one
// that is not admitted yet is granted nothing, and a deferred resize is not judged again because the status of the pod object has changed: deferred
// resizes are judged in an order.
func (z *Resizer) Decision(pod *corev1.Pod, observed cri.Pod, deleted bool) resize.Decision {
	if z.of == pod {
		return z.now
	}
	if !deleted && z.isSameDeferred(pod) {
		cause, message := z.now.Cause, z.now.Message
		z.now, z.of = resize.Decide(z.state(pod, observed)), pod
		if z.now.Resizes() {
			z.now = z.now.Deferred(message)
			z.now.Cause = cause
		}
		z.refresh(pod, observed, false)
		return z.now
	}
	if pod != nil && !deleted && pod.DeletionTimestamp == nil && z.Allocation() == nil {
		return resize.Decide(z.state(pod, observed))
	}
	z.Decide(pod, observed, deleted)
	return z.now
}

// state returns what is decided by.
func (z *Resizer) state(pod *corev1.Pod, observed cri.Pod) resize.State {
	return resize.State{
		Pod: pod, Observed: observed, Spec: z.node.Spec, Allocated: z.Allocation(), Told: z.toldSizes(observed),
		Sized: z.sizedPod(), SizedContainers: z.sizedContainers(), Fixed: z.node.updater == nil,
	}
}

// toldSizes returns what the runtime was told of the containers that there are, and forgets the others.
func (z *Resizer) toldSizes(observed cri.Pod) map[string]cgroups.Size {
	z.mu.Lock()
	defer z.mu.Unlock()
	maps.DeleteFunc(z.told, func(id string, _ cgroups.Size) bool {
		return !slices.ContainsFunc(observed.Containers, func(c cri.Container) bool { return c.ID == id })
	})
	return maps.Clone(z.told)
}

// sizedPod returns the pod-level resources that the pod's cgroup is for, or nil where that is not known.
func (z *Resizer) sizedPod() *cgroups.Size {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.sized == "" {
		return nil
	}
	whole, _, _ := strings.Cut(z.sized, ";")
	size, _ := resize.ParseSize(whole) // without any it is zero
	return &size
}

// MayLackLimits reports whether the cgroup of a pod may have limits for other resources than the pod now has.
func (z *Resizer) MayLackLimits(observed cri.Pod) bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.node.Cgroups != nil && z.node.updater != nil && !z.isSized(observed) && !podview.Terminated(observed)
}

// resize gives the pod and its running containers the resources that they are to have.
func (z *Resizer) resize(ctx context.Context, pod *corev1.Pod, a *plan.Actions) error {
	if len(a.Resize) == 0 && !a.ResizePod {
		return nil
	}
	r := &resizeCall{Resizer: z, pod: pod, sandboxID: a.SandboxID, containers: a.Resize}
	err := r.run(ctx)
	if err == nil {
		err = r.verify()
	}
	z.mu.Lock()
	if z.err = err; err == nil {
		z.sized = resourceKey(pod)
	}
	z.mu.Unlock()
	z.Note(z.record, z.Put)
	if err != nil && ctx.Err() == nil {
		z.recordError(pod, err)
	}
	return err
}

// cgroupMade notes that the pod's cgroup has the limits of its spec, since nothing was in it yet.
func (z *Resizer) cgroupMade(pod *corev1.Pod) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.sized = resourceKey(pod)
}

// created takes note of what a container was created with. What the runtime then says of it may differ, by a plugin or by
// how it rounds, and is no reason to resize the container, let alone to start it anew.
func (z *Resizer) created(id string, size cgroups.Size) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.tell(id, size)
}
