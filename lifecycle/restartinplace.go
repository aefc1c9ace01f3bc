// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/lifecycle/poddir"
	"github.com/seed81659283/nodeagent/qos"
)

// shouldRestartInPlace reports whether the worker keeps the deleted pod, with its mirror pod and restart counts, and
// restarts it after it has stopped. This is true only for a static pod that its source lists again unchanged, for example
// because its manifest was removed and rewritten. Source: restartRequested in pkg/kubelet/pod_workers.go,
// filterOutInactivePods in pkg/kubelet/kubelet_pods.go.
func (w *worker) shouldRestartInPlace(pod *corev1.Pod) bool {
	return pod != nil && qos.IsStatic(pod) && pod.DeletionTimestamp == nil && w.mailbox.IsRelisted() && !w.progress.sourceChanged
}

// restartInPlace cancels the deletion of a pod that its source lists again, so that the worker restarts the pod. The caller
// has stopped the containers and released volumes and cgroup. It returns false if the source no longer lists the pod.
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
