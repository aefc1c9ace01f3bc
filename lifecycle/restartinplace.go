// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/lifecycle/poddir"
	"github.com/seed81659283/nodeagent/qos"
)

// shouldRestartInPlace reports whether this worker restarts the deleted pod after it has stopped it, with its mirror pod and
// restart counts. It does so only with a static pod that has no terminal phase and that its source lists again unchanged, for
// example because its manifest was removed and rewritten. Source: restartRequested in pkg/kubelet/pod_workers.go,
// filterOutInactivePods in pkg/kubelet/kubelet_pods.go.
func (w *worker) shouldRestartInPlace(pod *corev1.Pod) bool {
	return pod != nil && qos.IsStatic(pod) && pod.DeletionTimestamp == nil && w.mailbox.IsRelisted() && !w.progress.sourceChanged
}

// restartInPlace cancels the deletion of a pod that its source lists again, so that the worker starts it again. The caller has
// stopped the containers and released volumes and cgroup. It returns false if the source no longer lists the pod.
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
