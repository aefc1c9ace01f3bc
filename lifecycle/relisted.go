// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/lifecycle/poddir"
	"github.com/seed81659283/nodeagent/qos"
)

// restartsInPlace reports whether a deleted pod is stopped and started again by this worker: a static pod whose source lists it again, unchanged,
// as after its manifest was removed and written again. Its mirror pod and its restart counts stay. A pod whose phase is terminal by then
// is not started. A pod that another source had is taken down first and starts anew. Source: restartRequested in
// pkg/kubelet/pod_workers.go, filterOutInactivePods in pkg/kubelet/kubelet_pods.go.
func (w *worker) shouldRestartInPlace(pod *corev1.Pod) bool {
	return pod != nil && qos.IsStatic(pod) && pod.DeletionTimestamp == nil && w.mailbox.ListedAgain() && !w.progress.sourceChanged
}

// restart revokes the deletion of a pod of which nothing runs and whose volumes and cgroup are released, and reports whether its source
// still lists it.
func (w *worker) restartInPlace() bool {
	if !w.mailbox.Restart() {
		return false
	}
	w.progress.teardowns = 0
	w.shared.setAdmission(admitted)
	w.reporter.Note(w.record, func(now *poddir.Record) { now.Status = w.shared.publishedStatus() }) // clearRecord has removed it
	terminal := w.shared.isTerminal()
	w.reporter.Log("pod is listed again", "restarted", !terminal)
	if hook := w.r.opts.Hooks.ResourcesReleased; hook != nil && terminal {
		hook(w.id)
	}
	return true
}
