// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/poddir"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podview"
	"github.com/seed81659283/nodeagent/internal/lifecycle/resize"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// Resizer decides about in-place resizes of one pod and performs them. The persistent record of the pod stores its allocated
// resources and the sizes sent to the runtime. Without a record the Resizer infers them from the containers, and may send a size
// again.
type Resizer struct {
	node     *Node
	reporter *Reporter
	record   *poddir.Recorder
	events   resizeEvents
	state    resizeState
	// ResourcesAllocated is called with the resources allocated to the pod, before resources are allocated to another pod. It
	// must be set before the first use.
	ResourcesAllocated func(*resize.Allocation)

	// Used only by the goroutine of the worker.
	decision       resize.Decision // the last decision
	decisionPod    *corev1.Pod     // the pod of decision
	specSizes      *resize.Sizes   // sizes of specSizesPod
	specSizesPod   *corev1.Pod
	allocatedSizes *resize.Sizes // sizes allocated to allocatedPod; nil: no decision so far
	allocatedPod   *corev1.Pod
}

// newResizer returns the Resizer of one pod. Both arguments belong to that pod: reporter records its events, and record is
// its persistent record.
func newResizer(reporter *Reporter, record *poddir.Recorder) *Resizer {
	return &Resizer{node: reporter.node, reporter: reporter, record: record, events: resizeEvents{reporter: reporter}}
}

// Restore restores the allocation, the sizes and the resize conditions from the record that a previous agent process wrote.
func (z *Resizer) Restore(record poddir.Record) {
	z.state.restoreRecord(record)
	if record.Status != nil {
		z.state.restoreGeneration(z.events.restoreConditions(record.Status.Conditions))
	}
}

// RestoreActuated stores the resources that a kubelet gave to the containers of the pod. Nil: the allocated resources. It is used if
// Node.AdoptUnlabeled is true.
func (z *Resizer) RestoreActuated(actuated *resize.Allocation) { z.state.restoreActuated(actuated) }

// WriteRecord copies the allocation of the pod, and the sizes sent to the runtime, to the persistent record of the pod.
func (z *Resizer) WriteRecord(record *poddir.Record) { z.state.writeRecord(record) }

// Decide decides whether to accept the resources in the spec of pod, which then become the allocated resources, and stores
// the decision. Call it only for an admitted pod. For a deleted pod it only discards the resize conditions.
func (z *Resizer) Decide(pod *corev1.Pod, observed cri.Pod, deleted bool) {
	if z.decisionPod != pod {
		z.decision, z.decisionPod = resize.Decision{Pod: pod}, pod
	}
	if pod == nil || deleted || pod.DeletionTimestamp != nil {
		z.events.clearConditions()
		return
	}
	accepted := z.decideAllocation(pod, observed)
	z.refreshState(pod, observed, accepted)
	z.events.recordDecision(pod, &z.decision, accepted)
}

// IsDeferred reports whether the last decision deferred a resize because the node lacks free resources for it.
func (z *Resizer) IsDeferred() bool {
	return z.decision.Reason == corev1.PodReasonDeferred
}

// Resources returns the pod of the last decision, once with its allocated resources and once with the actual resources of its
// containers and its cgroup. actual is nil if it equals allocated.
func (z *Resizer) Resources() (allocated, actual *corev1.Pod) {
	return z.decision.Pod, z.decision.Actual
}

// ResourcesAfter returns the results of [Resizer.Resources] after a resize, and after the containers in started were started. observed is the pod before.
func (z *Resizer) ResourcesAfter(observed cri.Pod, started []plan.Start) (allocated, actual *corev1.Pod) {
	if z.decision.Pod == nil {
		return nil, nil
	}
	observed.Containers = slices.DeleteFunc(slices.Clone(observed.Containers), func(c cri.Container) bool {
		return slices.ContainsFunc(started, func(s plan.Start) bool { return s.CreatedID == "" && s.Container.Name == c.Name })
	})
	state := z.inputWithoutSizes(z.decision.Pod, observed)
	state.SentSizes = z.state.allSentSizes() // also of containers that are newer than observed
	after := resize.Decide(state)
	return after.Pod, after.Actual
}

// isDeferredUnchanged reports whether the last decision has deferred a resize, and the spec of pod still requests the same
// resize.
func (z *Resizer) isDeferredUnchanged(pod *corev1.Pod) bool {
	return z.IsDeferred() && pod != nil && pod.DeletionTimestamp == nil && pod.Generation == z.decisionPod.Generation && resize.AllocationOf(z.decisionPod).Apply(pod) == pod
}

// decideAllocation decides which CPU and memory are allocated to pod, and stores them. accepted is true if it accepted a
// resize.
func (z *Resizer) decideAllocation(pod *corev1.Pod, observed cri.Pod) (accepted bool) {
	state := z.decisionInput(pod, observed)
	z.decision = resize.Decide(state)
	accepted = z.decision.IsResize()
	if accepted && z.node.AdmitResize != nil {
		z.node.resizeMutex.Lock() // otherwise two pods could get the same free resources
		defer z.node.resizeMutex.Unlock()
		if err := z.node.AdmitResize(pod); err != nil {
			z.decision, accepted = rejectionDecision(&z.decision, err), false
		}
	}
	if state.Allocated == nil || accepted {
		allocated := resize.AllocationOf(z.decision.Pod)
		z.state.setAllocation(allocated)
		if z.ResourcesAllocated != nil {
			z.ResourcesAllocated(allocated)
		}
	}
	if accepted {
		z.reporter.UpdateRecord(z.record, z.WriteRecord) // persist the allocation before it is acted upon
	}
	return accepted
}

// refreshState updates z.state, the progress of the pod's resize, after z.decision was made. accepted is true if the decision
// accepted a resize. It copies the resize error, and the generation of the pod that requested the resize, to z.decision.
func (z *Resizer) refreshState(pod *corev1.Pod, observed cri.Pod, accepted bool) {
	s := &z.state
	s.mu.Lock()
	defer s.mu.Unlock()
	if z.decision.Pod != z.allocatedPod {
		first := z.allocatedPod == nil
		z.allocatedPod = z.decision.Pod
		if !z.decision.Sizes.Equal(z.allocatedSizes) {
			z.allocatedSizes = z.decision.Sizes
			if !first || accepted || s.generation == 0 { // the first decision of this agent may continue a resize of a previous one
				// This pod spec requested the resize.
				s.generation, s.err = pod.Generation, nil
			}
		}
	}
	if s.forCgroup == nil && !z.decision.ResizedSinceCreate {
		s.forCgroup = z.allocatedSizes
	}
	if !z.decision.InProgress && len(z.decision.Containers) == 0 && (z.node.Cgroups == nil || z.isCgroupUpToDate(s.forCgroup, observed)) {
		// All containers and the pod cgroup have their allocated sizes.
		s.err = nil
	}
	if z.decision.Generation = s.generation; s.err != nil {
		z.decision.Error = s.err.Error()
	}
}

// isCgroupUpToDate reports whether the sizes last set in the pod cgroup equal the allocated sizes, except for completed init
// containers.
func (z *Resizer) isCgroupUpToDate(sizes *resize.Sizes, observed cri.Pod) bool {
	if z.allocatedPod == nil || sizes.Equal(z.allocatedSizes) {
		return sizes.Equal(z.allocatedSizes)
	}
	return sizes != nil && sizes.EqualExcept(z.allocatedSizes, func(container string) bool {
		return resize.HasCompleted(&z.allocatedPod.Spec, container, observed)
	})
}

// rejectionDecision returns the decision after Node.AdmitResize has failed with err: the resize is deferred or infeasible.
func rejectionDecision(decision *resize.Decision, err error) resize.Decision {
	why, ok := errors.AsType[*podstatus.Rejection](err)
	switch {
	case !ok:
		return decision.Deferred(err.Error())
	case why.Reason == corev1.PodReasonInfeasible:
		return decision.Infeasible(why.Message)
	default:
		deferred := decision.Deferred(why.Message)
		deferred.Cause = why.StatusReason()
		return deferred
	}
}

// CurrentDecision returns the decision about the resources of pod, and decides again if pod has changed. It does not retry a
// deferred resize after a mere status change, because package resizequeue orders the retries of all pods. A pod that is not
// admitted gets no allocation.
func (z *Resizer) CurrentDecision(pod *corev1.Pod, observed cri.Pod, deleted bool) resize.Decision {
	if z.decisionPod == pod {
		return z.decision
	}
	if !deleted && z.isDeferredUnchanged(pod) {
		cause, message := z.decision.Cause, z.decision.Message
		z.decision, z.decisionPod = resize.Decide(z.decisionInput(pod, observed)), pod
		if z.decision.IsResize() {
			z.decision = z.decision.Deferred(message)
			z.decision.Cause = cause
		}
		z.refreshState(pod, observed, false)
		return z.decision
	}
	if pod != nil && !deleted && pod.DeletionTimestamp == nil && z.state.allocation() == nil {
		return resize.Decide(z.decisionInput(pod, observed))
	}
	z.Decide(pod, observed, deleted)
	return z.decision
}

// decisionInput returns the input of [resize.Decide] for pod. It contains the observed containers, the allocation and the
// sizes sent to the runtime.
func (z *Resizer) decisionInput(pod *corev1.Pod, observed cri.Pod) resize.State {
	if z.specSizesPod != pod {
		z.specSizes, z.specSizesPod = resize.SizesOf(pod), pod
	}
	if z.node.AdoptUnlabeled {
		z.state.adoptSizes(pod, observed)
	}
	state := z.inputWithoutSizes(pod, observed)
	state.Sizes, state.SentSizes = z.specSizes, z.state.sentSizes(observed)
	return state
}

// inputWithoutSizes returns the input of [resize.Decide] for pod without Sizes and SentSizes.
func (z *Resizer) inputWithoutSizes(pod *corev1.Pod, observed cri.Pod) resize.State {
	return resize.State{
		Pod: pod, Observed: observed, Spec: z.node.Spec, Allocated: z.state.allocation(),
		CgroupSizes: z.state.cgroupSizes(), NoCgroup: z.node.Cgroups == nil, NoUpdates: !z.node.canUpdate(),
	}
}

// MayHaveStaleLimits reports whether the pod cgroup may still have the limits of an earlier allocation. It returns false
// for a terminated pod, and on a node that cannot resize pods.
func (z *Resizer) MayHaveStaleLimits(observed cri.Pod) bool {
	return z.node.Cgroups != nil && z.node.canUpdate() && !z.isCgroupUpToDate(z.state.cgroupSizes(), observed) && !podview.IsTerminated(observed)
}

// resizePod resizes the pod cgroup and the running containers, and persists the result. An error is also recorded as an
// event.
func (z *Resizer) resizePod(ctx context.Context, pod *corev1.Pod, actions *plan.Actions) error {
	if len(actions.Resize) == 0 && !actions.ResizePod {
		return nil
	}
	r := &resizeCall{resizer: z, node: z.node, pod: pod, sandboxID: actions.SandboxID, containers: actions.Resize}
	err := r.runResize(ctx)
	if err == nil {
		err = r.checkAllSent()
	}
	generation := z.state.recordAttempt(resize.SizesOf(pod), err)
	z.reporter.UpdateRecord(z.record, z.WriteRecord)
	if err != nil && ctx.Err() == nil {
		z.events.recordError(pod, generation, err)
	}
	return err
}

// cgroupSizes returns the sizes for which the pod cgroup was last set up, or nil if they are unknown.
func (z *Resizer) cgroupSizes() *resize.Sizes {
	if z.node.Cgroups == nil || !z.node.canUpdate() {
		return nil
	}
	return z.state.cgroupSizes()
}

// setCgroupCreated records that a new cgroup was created for pod, with the sizes in its spec.
func (z *Resizer) setCgroupCreated(pod *corev1.Pod) { z.state.setCgroupSizes(resize.SizesOf(pod)) }

// recordCreatedSize records the size with which a container was created.
func (z *Resizer) recordCreatedSize(id string, size cgroups.ContainerSize) {
	// The runtime may report a rounded size, which must not cause a resize or restart.
	z.state.setSentSize(id, size)
}
