// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/lifecycle/poddir"
	"github.com/seed81659283/nodeagent/qos"
)

// shouldRestartInPlace reports whether a deleted static pod is restarted with its restart counts, because its source lists it
// again unchanged. Source: restartRequested in pkg/kubelet/pod_workers.go, filterOutInactivePods in pkg/kubelet/kubelet_pods.go.
func (w *worker) shouldRestartInPlace(pod *corev1.Pod) bool {
	return pod != nil && qos.IsStatic(pod) && pod.DeletionTimestamp == nil && w.mailbox.IsRelisted() && !w.progress.sourceChanged
}

// restartInPlace cancels the deletion of a stopped pod that its source lists again, and reports whether it does. The worker then
// restarts the pod.
func (w *worker) restartInPlace() bool {
	if !w.mailbox.RevokeDeletion() {
		return false
	}
	w.progress.teardowns = 0
	w.shared.setAdmission(admitted)
	w.reporter.UpdateRecord(w.record, func(now *poddir.Record) { now.Status = w.shared.publishedStatus() }) // clearRecord has removed it
	terminal := w.shared.isTerminal()
	w.reporter.Log("pod is listed again", "restarted", !terminal)
	if hook := w.r.opts.Hooks.ResourcesReleased; hook != nil && terminal {
		hook(w.id)
	}
	return true
}
