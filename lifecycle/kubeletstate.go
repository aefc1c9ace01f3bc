// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"path/filepath"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/lifecycle/kubeletstate"
	"github.com/seed81659283/nodeagent/internal/lifecycle/poddir"
	"github.com/seed81659283/nodeagent/internal/lifecycle/resize"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
)

// runKubeletState opens the kubelet's files and starts to write them. Run must call the returned function when no worker runs any more: it writes the last
// changes and waits for that.
func (r *Reconciler) runKubeletState(ctx context.Context) (stop func()) {
	r.kubeletState = r.openKubeletState()
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { r.kubeletState.Run(ctx) })
	return func() { cancel(); wg.Wait() }
}

// openKubeletState opens the kubelet's files with the resources of pods. They are beside Dirs.Pods, and are used if the agent takes the place of a
// kubelet. It returns nil on other nodes.
func (r *Reconciler) openKubeletState() *kubeletstate.Store {
	if !r.opts.AdoptUnlabeled || r.opts.Dirs.Pods == "" {
		return nil
	}
	return kubeletstate.Open(filepath.Dir(r.opts.Dirs.Pods), r.opts.Dirs.Pods, r.opts.Logger)
}

// restoreAllocation restores the resources of the pod from its record, or from the kubelet's files if the record has none. A resize that a kubelet has
// deferred or started then continues.
func (w *worker) restoreAllocation() {
	record := w.record.Get()
	if record.Allocated == nil {
		record = w.completeAllocation(record)
	}
	w.shared.setAllocation(record.Allocated)
	w.exec.Resizer.Restore(record)
}

// completeAllocation returns record with the resources in the kubelet's files. It also restores those that the kubelet gave to the containers.
func (w *worker) completeAllocation(record poddir.Record) poddir.Record {
	uid := w.id.UID
	record.Allocated = w.r.kubeletState.Allocation(uid)
	pod, _ := w.mailbox.Desired()
	if record.Allocated == nil || pod == nil {
		return record
	}
	actuated := w.r.kubeletState.Actuated(uid)
	if actuated == nil || actuated.Pod == nil { // otherwise the kubelet resizes pod-level resources and containers one by one
		record.Sized = resize.SizesOf(actuated.Apply(record.Allocated.Apply(pod))).String() // the kubelet resizes the pod cgroup with the containers
	}
	if actuated != nil && actuated.Pod == nil {
		actuated.Pod = record.Allocated.Pod // a container without an own limit inherits that of the pod
	}
	w.exec.Resizer.RestoreActuated(actuated)
	return record
}

// storeKubeletState stores the resources of an admitted pod in the kubelet's files.
func (w *worker) storeKubeletState(pod *corev1.Pod, deleted bool) {
	if !w.hasKubeletState(pod, deleted) {
		return
	}
	if allocated, actual := w.exec.Resizer.Resources(); allocated != nil {
		w.r.kubeletState.Set(allocated, actual)
	}
}

// storeResized stores the resources of a pod after its containers were resized or started: a stopped agent has no further sync to store them.
// If started is false, after an error or a change of the pod, only the resized containers have the allocated resources for sure.
func (w *worker) storeResized(pod *corev1.Pod, state *plan.State, actions *plan.Actions, started bool) {
	if !w.hasKubeletState(pod, state.Deleted) || len(actions.Resize)+len(actions.Start) == 0 && !actions.ResizePod {
		return
	}
	var starts []plan.Start
	if started {
		starts = actions.Start
	}
	if allocated, actual := w.exec.Resizer.ResourcesAfter(state.Observed, starts); allocated != nil {
		w.r.kubeletState.Set(allocated, actual)
	}
}

// hasKubeletState reports whether the kubelet's files have an entry of pod.
func (w *worker) hasKubeletState(pod *corev1.Pod, deleted bool) bool {
	return w.r.kubeletState != nil && !deleted && pod.DeletionTimestamp == nil && w.shared.currentAllocation() != nil
}
