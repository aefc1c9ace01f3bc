// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/lifecycle/poddir"
	"github.com/seed81659283/nodeagent/qos"
)

// shouldRestartInPlace reports whether a deleted pod is stopped and then started again by this worker. This happens to a static
// pod whose source lists it again unchanged, for example because its manifest was removed and rewritten. Its mirror pod and
// restart counts are kept.
//
// A pod in a terminal phase is not started again. Source: restartRequested in pkg/kubelet/pod_workers.go, filterOutInactivePods
// in pkg/kubelet/kubelet_pods.go.
func (w *worker) shouldRestartInPlace(pod *corev1.Pod) bool {
	return pod != nil && qos.IsStatic(pod) && pod.DeletionTimestamp == nil && w.mailbox.IsRelisted() && !w.progress.sourceChanged
}

// restartInPlace revokes the deletion of a pod whose containers have exited and whose volumes and cgroup are released. It returns
// false if the source does not list the pod any more.
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
