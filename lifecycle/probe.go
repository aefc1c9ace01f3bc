// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/probe"
)

// Probes runs the liveness, readiness and startup probes of pods. *podprobe.Pods implements it. If an implementation does not
// implement [Notifier], the program must call [Reconciler.Changed] when the result of a probe has changed.
type Probes interface {
	// Sync starts, updates and stops the probes of a pod for its current containers. It does not block. The error names each
	// probe that cannot be run; all other probes run.
	Sync(pod *corev1.Pod, status *corev1.PodStatus) error
	// Remove stops the probes of a pod and discards their results.
	Remove(uid string)
	// Result returns the current result of a probe. ok is false if there is none.
	Result(key probe.Key) (value probe.Value, ok bool)
}

// syncProbes passes the pod and its published status to Options.Probes, which starts and stops probes.
func (w *worker) syncProbes(pod *corev1.Pod, status *corev1.PodStatus, deleted bool) {
	if w.r.opts.Probes == nil {
		return
	}
	if deleted && pod.DeletionTimestamp == nil {
		copied, now := *pod, metav1.Now()
		copied.DeletionTimestamp = &now // only readiness probes continue
		pod = &copied
	}
	if err := w.r.opts.Probes.Sync(pod, status); err != nil {
		w.reporter.Warn("probes", "error", err)
	}
}
