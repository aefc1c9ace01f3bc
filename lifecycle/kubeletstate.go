// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/lifecycle/kubeletstate"
	"github.com/seed81659283/nodeagent/internal/lifecycle/poddir"
	"github.com/seed81659283/nodeagent/internal/lifecycle/resize"
)

// openKubeletState opens the kubelet's files with the resources of pods. They are beside Dirs.Pods, and are used if the agent takes the place of a
// kubelet. It returns nil on other nodes.
func (r *Reconciler) openKubeletState() *kubeletstate.Store {
	if !r.opts.AdoptUnlabeled || r.opts.Dirs.Pods == "" {
		return nil
	}
	return kubeletstate.Open(filepath.Dir(r.opts.Dirs.Pods), r.opts.Dirs.Pods, r.opts.Logger)
}

// completeAllocation returns the record of the pod with the resources that a kubelet has allocated, if the record has none. A resize that the kubelet has
// deferred or started then continues.
func (w *worker) completeAllocation(record poddir.Record) poddir.Record {
	if record.Allocated != nil {
		return record
	}
	record.Allocated = w.r.kubeletState.Allocation(w.id.UID)
	actuated := w.r.kubeletState.Actuated(w.id.UID)
	pod, _ := w.mailbox.Desired()
	// Under pod-level resources, the kubelet's actuated limits are not those of the spec.
	if record.Allocated != nil && actuated != nil && actuated.Pod == nil && pod != nil {
		record.Sized = resize.SizesOf(actuated.Apply(pod)).String() // the kubelet resizes the pod cgroup with the containers
	}
	return record
}

// storeKubeletState stores the resources of an admitted pod in the kubelet's files.
func (w *worker) storeKubeletState(pod *corev1.Pod, deleted bool) {
	if w.r.kubeletState == nil || deleted || pod.DeletionTimestamp != nil || w.shared.currentAllocation() == nil {
		return
	}
	if allocated, actual := w.exec.Resizer.Resources(); allocated != nil {
		w.r.kubeletState.Set(allocated, actual)
	}
}
