// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/poddir"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podview"
	"github.com/seed81659283/nodeagent/internal/lifecycle/resize"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// Resizer decides about the resources of one pod, and changes those of its containers while they run. The record of the pod keeps the
// resources that are allocated to the pod and that the runtime was told; without a record an agent reads the containers anew, and at
// worst tells the runtime once more.
type Resizer struct {
	node     *Node
	reporter *Reporter
	record   *poddir.Recorder
	events   resizeEvents
	state    resizeState
	// Granted is called with what is allocated to the pod, before another pod is granted more. It is set before the first use.
	Granted func(*resize.Allocation)

	// Of the goroutine of the worker alone.
	now       resize.Decision // the last one
	of        *corev1.Pod     // that it is about
	spec      *resize.Sizes   // of specOf
	specOf    *corev1.Pod
	current   *resize.Sizes // that are allocated to the pod; nil: nothing was decided yet
	currentOf *corev1.Pod
}

// newResizer returns the Resizer of one pod.
func newResizer(reporter *Reporter, record *poddir.Recorder) *Resizer {
	return &Resizer{node: reporter.node, reporter: reporter, record: record, events: resizeEvents{reporter: reporter}}
}

// Recall restores the state that an earlier agent has recorded.
func (z *Resizer) Recall(known poddir.Record) {
	z.state.restore(known)
	if known.Status != nil {
		z.state.restoreGeneration(z.events.restore(known.Status.Conditions))
	}
}

// Put writes the allocation of the pod, and what the runtime was told, to a record.
func (z *Resizer) Put(now *poddir.Record) { z.state.put(now) }

// Decide decides what is to become of the resources of the pod, which is admitted, and keeps that for the actions and the
// status. What the pod is granted is allocated to it from now on.
func (z *Resizer) Decide(pod *corev1.Pod, observed cri.Pod, deleted bool) {
	if z.of != pod {
		z.now, z.of = resize.Decision{Pod: pod}, pod
	}
	if pod == nil || deleted || pod.DeletionTimestamp != nil {
		z.events.reset()
		return
	}
	accepted := z.judge(pod, observed)
	z.refresh(pod, observed, accepted)
	z.events.record(pod, &z.now, accepted)
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
	state := z.input(pod, observed)
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
		allocated := resize.AllocationOf(z.now.Pod)
		z.state.setAllocation(allocated)
		if z.Granted != nil {
			z.Granted(allocated)
		}
	}
	if accepted {
		z.reporter.Note(z.record, z.Put) // before it is acted upon
	}
	return accepted
}

// refresh updates the state that is kept beside a decision, and completes the decision with it.
func (z *Resizer) refresh(pod *corev1.Pod, observed cri.Pod, accepted bool) {
	s := &z.state
	s.mu.Lock()
	defer s.mu.Unlock()
	if z.now.Pod != z.currentOf {
		first := z.currentOf == nil
		z.currentOf = z.now.Pod
		if !z.now.Sizes.Equal(z.current) {
			z.current = z.now.Sizes
			if !first || accepted || s.generation == 0 { // the first look may be at what an earlier agent was at
				s.generation, s.err = pod.Generation, nil
			}
		}
	}
	if s.sized == nil && !z.now.Changed {
		s.sized = z.current
	}
	if !z.now.InProgress && len(z.now.Containers) == 0 && (z.node.Cgroups == nil || z.isSized(s.sized, observed)) {
		s.err = nil
	}
	if z.now.Generation = s.generation; s.err != nil {
		z.now.Error = s.err.Error()
	}
}

// isSized reports whether sized are the allocated resources, but for init containers that have completed.
func (z *Resizer) isSized(sized *resize.Sizes, observed cri.Pod) bool {
	if z.currentOf == nil || sized.Equal(z.current) {
		return sized.Equal(z.current)
	}
	return sized != nil && sized.EqualExcept(z.current, func(container string) bool {
		return resize.HasCompleted(&z.currentOf.Spec, container, observed)
	})
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
		z.now, z.of = resize.Decide(z.input(pod, observed)), pod
		if z.now.Resizes() {
			z.now = z.now.Deferred(message)
			z.now.Cause = cause
		}
		z.refresh(pod, observed, false)
		return z.now
	}
	if pod != nil && !deleted && pod.DeletionTimestamp == nil && z.state.allocation() == nil {
		return resize.Decide(z.input(pod, observed))
	}
	z.Decide(pod, observed, deleted)
	return z.now
}

// input returns the state that [resize.Decide] decides by.
func (z *Resizer) input(pod *corev1.Pod, observed cri.Pod) resize.State {
	if z.specOf != pod {
		z.spec, z.specOf = resize.SizesOf(pod), pod
	}
	return resize.State{
		Pod: pod, Sizes: z.spec, Observed: observed, Spec: z.node.Spec, Allocated: z.state.allocation(), Told: z.state.toldSizes(observed),
		Sized: z.state.sizes(), NoCgroup: z.node.Cgroups == nil, Fixed: z.node.updater == nil,
	}
}

// MayLackLimits reports whether the cgroup of a pod may have limits for other resources than the pod now has.
func (z *Resizer) MayLackLimits(observed cri.Pod) bool {
	return z.node.Cgroups != nil && z.node.updater != nil && !z.isSized(z.state.sizes(), observed) && !podview.Terminated(observed)
}

// resize gives the pod and its running containers the resources that they are to have.
func (z *Resizer) resize(ctx context.Context, pod *corev1.Pod, a *plan.Actions) error {
	if len(a.Resize) == 0 && !a.ResizePod {
		return nil
	}
	r := &resizeCall{resizer: z, node: z.node, pod: pod, sandboxID: a.SandboxID, containers: a.Resize}
	err := r.run(ctx)
	if err == nil {
		err = r.verify()
	}
	generation := z.state.attempted(resize.SizesOf(pod), err)
	z.reporter.Note(z.record, z.Put)
	if err != nil && ctx.Err() == nil {
		z.events.recordError(pod, generation, err)
	}
	return err
}

// cgroupSizes returns the sizes that the cgroup of the pod is for. Nil: they are unknown, or nothing can be resized.
func (z *Resizer) cgroupSizes() *resize.Sizes {
	if z.node.Cgroups == nil || z.node.updater == nil {
		return nil
	}
	return z.state.sizes()
}

// cgroupMade stores that the cgroup of pod has the limits of its spec, since nothing was in it yet.
func (z *Resizer) cgroupMade(pod *corev1.Pod) { z.state.setSizes(resize.SizesOf(pod)) }

// created stores the size that a container was created with. The size that the runtime reports later may differ, by a plugin or by
// how it rounds, and is no reason to resize the container, let alone to restart it.
func (z *Resizer) created(id string, size cgroups.ContainerSize) { z.state.tell(id, size) }
