// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"fmt"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// Handle gives access to the pods of a [Reconciler] before that exists. Some [Options] of a Reconciler need its pods, for example
// an eviction manager: give them the Handle, and call Set once the Reconciler is created. Before Set the Handle has no pods. The
// zero value is ready to use. A Handle must not be copied.
type Handle struct{ reconciler atomic.Pointer[Reconciler] }

// Set sets the Reconciler that the other methods of h call.
func (h *Handle) Set(reconciler *Reconciler) { h.reconciler.Store(reconciler) }

// Reconciler returns the Reconciler, or nil if [Handle.Set] was not called yet.
func (h *Handle) Reconciler() *Reconciler { return h.reconciler.Load() }

// Pods calls [Reconciler.Pods]. Before [Handle.Set] was called, it returns nil.
func (h *Handle) Pods() []PodState {
	if r := h.Reconciler(); r != nil {
		return r.Pods()
	}
	return nil
}

// Pod calls [Reconciler.Pod]. Before [Handle.Set] was called, ok is false.
func (h *Handle) Pod(uid string) (state PodState, ok bool) {
	if r := h.Reconciler(); r != nil {
		return r.Pod(uid)
	}
	return PodState{}, false
}

// PodStatus calls [Reconciler.PodStatus]. Before [Handle.Set] was called, ok is false.
func (h *Handle) PodStatus(uid string) (pod cri.PodIdentity, status *corev1.PodStatus, ok bool) {
	if r := h.Reconciler(); r != nil {
		return r.PodStatus(uid)
	}
	return pod, nil, false
}

// Active returns the pods whose requests count against the capacity of the node, as [Reconciler.Active] does. Before [Handle.Set]
// was called, it returns no pods, and complete is false.
func (h *Handle) Active() (pods []*corev1.Pod, complete bool) {
	if r := h.Reconciler(); r != nil {
		return r.Active()
	}
	return nil, false
}

// ImagesInUse calls [Reconciler.ImagesInUse]. Before [Handle.Set] was called, it returns nil.
func (h *Handle) ImagesInUse() []string {
	if r := h.Reconciler(); r != nil {
		return r.ImagesInUse()
	}
	return nil
}

// MayRun reports whether a container of the pod may be running or start later, as [Reconciler.MayRun] does. Before [Handle.Set]
// was called, it returns true, because any pod may run.
func (h *Handle) MayRun(uid string) bool {
	r := h.Reconciler()
	return r == nil || r.MayRun(uid)
}

// IsManaged reports whether garbage collection must keep the containers and files of the pod, as [Reconciler.IsManaged] does.
// Before [Handle.Set] was called, it returns true, so that nothing is removed.
func (h *Handle) IsManaged(uid string) bool {
	r := h.Reconciler()
	return r == nil || r.IsManaged(uid)
}

// Owns reports whether pod has a sandbox or container of this agent, by the label [LabelOwner]; see Options.Owner and Options.AdoptUnlabeled. Before
// [Reconciler.Run] has read the owner, it returns false. It waits for no lock.
func (h *Handle) Owns(pod *cri.Pod) bool {
	r := h.Reconciler()
	if r == nil {
		return false
	}
	owner := r.claimedOwner.Load()
	return owner != nil && owner.Owns(pod)
}

// Evict evicts a pod by calling [Reconciler.Evict]. Before [Handle.Set] was called, it returns an error that wraps
// [cri.ErrNotFound].
func (h *Handle) Evict(ctx context.Context, uid string, eviction podstatus.Eviction) error {
	if r := h.Reconciler(); r != nil {
		return r.Evict(ctx, uid, eviction)
	}
	return fmt.Errorf("pod %s: no Reconciler is set: %w", uid, cri.ErrNotFound)
}

// RemoveTerminatedContainers removes the containers of terminated pods by calling [Reconciler.RemoveTerminatedContainers]. Before
// [Handle.Set] was called, it does nothing and returns nil.
func (h *Handle) RemoveTerminatedContainers(ctx context.Context) error {
	if r := h.Reconciler(); r != nil {
		return r.RemoveTerminatedContainers(ctx)
	}
	return nil
}
