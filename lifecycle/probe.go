// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/probe"
)

// Probes runs the liveness, readiness and startup probes of pods. *podprobe.Pods is one. Whoever owns one that is no
// [Notifier] calls [Reconciler.Changed] when a result has changed.
type Probes interface {
	// Sync says how a pod and its containers are now. It does not wait. The error names probes that can never be
	// asked; the others are.
	Sync(pod *corev1.Pod, status *corev1.PodStatus) error
	// Remove ends the probes of a pod and forgets what they have found.
	Remove(uid string)
	// Result returns what a probe has come to, if anything.
	Result(k probe.Key) (probe.Value, bool)
}

// syncProbes tells the probes how the pod is, as it was published. Of a pod that nobody wants any more only readiness
// matters.
func (w *worker) syncProbes(pod *corev1.Pod, st *corev1.PodStatus, deleted bool) {
	if w.r.opts.Probes == nil {
		return
	}
	if deleted && pod.DeletionTimestamp == nil {
		copied, now := *pod, metav1.Now()
		copied.DeletionTimestamp = &now
		pod = &copied
	}
	if err := w.r.opts.Probes.Sync(pod, st); err != nil {
		w.reporter.Warn("probes", "error", err)
	}
}
