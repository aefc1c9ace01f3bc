// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import "github.com/seed81659283/nodeagent/lifecycle/poddir"

// removeOrphanDirs removes the directories of pods that nobody wants and the runtime does not have, which an agent leaves that dies
// between its last call for a pod and its last look at it. What has no record was not made by an agent. It does so, and
// returns true, once all that is wanted is known, and all that the runtime has: also the directory of a pod that could not
// be looked into, or that is another agent's, holds the IDs that its containers run with.
func (r *Reconciler) removeOrphanDirs() bool {
	observed, err := r.observer.Pods()
	r.mu.Lock()
	complete, known := r.complete() && err == nil, r.wanted()
	for uid := range r.workers {
		known[uid] = nil
	}
	for uid := range r.refused() {
		known[uid] = nil
	}
	r.mu.Unlock()
	for i := range observed {
		known[observed[i].UID] = nil
	}
	if !complete || r.opts.PodRoot == "" {
		return complete
	}
	uids, err := poddir.Recorded(r.opts.PodRoot)
	if err != nil {
		r.opts.Logger.Warn("pod directories", "error", err)
	}
	for _, uid := range uids {
		if _, ok := known[uid]; ok {
			continue
		}
		r.opts.Logger.Info("remove files of a former pod", "uid", uid)
		if err := poddir.Of(r.opts.PodRoot, uid).Remove(); err != nil {
			r.opts.Logger.Warn("remove files of a former pod", "uid", uid, "error", err)
		}
	}
	return true
}
