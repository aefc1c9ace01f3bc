// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/ownership"
	"github.com/seed81659283/nodeagent/internal/lifecycle/poddir"
)

// LabelOwner is the label of sandboxes and containers that names the agent which created them. An agent tears down an orphaned
// pod only if the label has the agent's own value, so that several agents can share a runtime. See Options.AdoptUnlabeled for
// those that have no label.
const LabelOwner = ownership.Label

// claimOwner sets r.owner, the value of the label that marks the sandboxes and containers of this agent. If Options.Dirs.Pods
// is set, it locks this directory until the caller calls release.
func (r *Reconciler) claimOwner() (release func() error, err error) {
	owner, release := r.opts.Owner, func() error { return nil }
	if r.opts.Dirs.Pods != "" {
		var claimed *poddir.LockedRoot
		if claimed, err = poddir.LockRoot(r.opts.Dirs.Pods, owner); err == nil {
			owner, release = claimed.Owner, claimed.Release
		} else {
			owner = ""
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.owner, r.claimErr, r.claimed = ownership.Owner{Mark: owner, AdoptsUnlabeled: r.opts.AdoptUnlabeled}, err, true
	claimed := r.owner
	r.claimedOwner.Store(&claimed)
	return release, err
}

// filterOwned returns the observed sandboxes and containers that this worker may change.
func (w *worker) filterOwned(observed cri.Pod, deleted bool) (cri.Pod, error) {
	owner, foreign := w.r.owner.ForeignMark(&observed)
	w.exec.Cleaner.SetShared(foreign)
	switch {
	case !foreign:
		return observed, nil
	case deleted:
		// Only the containers of this agent are torn down.
		return w.r.owner.Filter(observed), nil
	}
	// A source lists the pod.
	return observed, fmt.Errorf("the runtime has containers of the pod that belong to another agent: label %s is %.63q, not %q", LabelOwner, owner, w.r.owner.Mark)
}
