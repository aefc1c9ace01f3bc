// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
)

// Active returns the pods whose requests count: those that are wanted and have not terminated. It is complete when every
// source has said all that it wants.
func (r *Reconciler) Active() (pods []*corev1.Pod, complete bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid, pod := range r.wanted() {
		if w := r.workers[uid]; w == nil || !w.isTerminal() {
			pods = append(pods, pod)
		}
	}
	return pods, r.complete()
}

// MayRun reports whether anything of a pod runs or may be about to run: a pod that is wanted or still terminating, or one that
// only the runtime knows, whoever made it. As long as the runtime has not been listed to the end, any pod may.
func (r *Reconciler) MayRun(uid string) bool {
	r.mu.Lock()
	known := r.workers[uid] != nil || r.wanted()[uid] != nil || r.refused()[uid]
	r.mu.Unlock()
	if known {
		return true
	}
	pods, err := r.observer.Pods()
	return err != nil || slices.ContainsFunc(pods, func(p cri.Pod) bool { return p.UID == uid })
}
