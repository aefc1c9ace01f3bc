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
// pod only if the label has the agent's own value, so that several agents can share a runtime.
const LabelOwner = ownership.Label

// claimOwner sets r.owner, the value of [LabelOwner] with which this agent labels its containers. If Dirs.Pods is set,
// claimOwner also locks that directory, so that no other agent uses it before release is called.
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
	r.owner, r.claimErr, r.claimed = ownership.Mark(owner), err, true
	return release, err
}

// filterOwned returns the observed sandboxes and containers that this worker may change. If none of them has the
// [LabelOwner] of another agent, it returns all. Otherwise the result depends on the pod. If a source lists the pod,
// filterOwned returns an error. If the pod is deleted, it returns only the containers of this agent, which are torn down.
func (w *worker) filterOwned(observed cri.Pod, deleted bool) (cri.Pod, error) {
	owner, foreign := w.r.owner.ForeignMark(&observed)
	w.exec.Cleaner.SetShared(foreign)
	switch {
	case !foreign:
		return observed, nil
	case deleted:
		return w.r.owner.Filter(observed), nil
	}
	return observed, fmt.Errorf("the runtime has containers of the pod that belong to another agent: label %s is %.63q, not %q", LabelOwner, owner, w.r.owner)
}
