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

// Handle has the pods of a Reconciler that is made later: for the parts of an agent that [Options] refers to, and that need the pods themselves,
// such as an evictor. Until Set is called it has no pods. The zero value is ready; it must not be copied.
type Handle struct{ reconciler atomic.Pointer[Reconciler] }

// Set sets the Reconciler.
func (h *Handle) Set(r *Reconciler) { h.reconciler.Store(r) }

// Reconciler returns the Reconciler, or nil before Set.
func (h *Handle) Reconciler() *Reconciler { return h.reconciler.Load() }

// Pods is [Reconciler.Pods].
func (h *Handle) Pods() []PodState {
	if r := h.Reconciler(); r != nil {
		return r.Pods()
	}
	return nil
}

// Pod is [Reconciler.Pod].
func (h *Handle) Pod(uid string) (state PodState, ok bool) {
	if r := h.Reconciler(); r != nil {
		return r.Pod(uid)
	}
	return PodState{}, false
}

// PodStatus is [Reconciler.PodStatus].
func (h *Handle) PodStatus(uid string) (pod cri.PodIdentity, status *corev1.PodStatus, ok bool) {
	if r := h.Reconciler(); r != nil {
		return r.PodStatus(uid)
	}
	return pod, nil, false
}

// Active is [Reconciler.Active]. Before Set the pods are not complete.
func (h *Handle) Active() (pods []*corev1.Pod, complete bool) {
	if r := h.Reconciler(); r != nil {
		return r.Active()
	}
	return nil, false
}

// Images is [Reconciler.Images].
func (h *Handle) ImagesInUse() []string {
	if r := h.Reconciler(); r != nil {
		return r.ImagesInUse()
	}
	return nil
}

// MayRun is [Reconciler.MayRun]. Before Set any pod may run.
func (h *Handle) MayRun(uid string) bool {
	r := h.Reconciler()
	return r == nil || r.MayRun(uid)
}

// Owned is [Reconciler.Owned]. Before Set every pod is owned, so that nothing of it is removed.
func (h *Handle) IsManaged(uid string) bool {
	r := h.Reconciler()
	return r == nil || r.IsManaged(uid)
}

// Evict is [Reconciler.Evict]. Before Set the error wraps [cri.ErrNotFound].
func (h *Handle) Evict(ctx context.Context, uid string, e podstatus.Eviction) error {
	if r := h.Reconciler(); r != nil {
		return r.Evict(ctx, uid, e)
	}
	return fmt.Errorf("pod %s: the reconciler is not made yet: %w", uid, cri.ErrNotFound)
}

// Trim is [Reconciler.Trim].
func (h *Handle) RemoveTerminatedContainers(ctx context.Context) error {
	if r := h.Reconciler(); r != nil {
		return r.RemoveTerminatedContainers(ctx)
	}
	return nil
}
