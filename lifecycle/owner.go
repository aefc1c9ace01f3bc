// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/ownership"
	"github.com/seed81659283/nodeagent/internal/lifecycle/poddir"
)

// LabelOwner is the label of sandboxes and containers that names the agent which created them. An agent tears down orphaned pods
// with its own value only, so that several agents can share a runtime.
const LabelOwner = ownership.Label

// claimOwner determines the value of [LabelOwner] for the containers of this agent, and locks Dirs.Pods, if set, until release is
// called.
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

// filterOwned returns the part of the observed pod that the worker may change. If another agent runs a pod of this UID, too, that
// is only the part with the own LabelOwner, to tear it down. While a source lists the pod, this is an error: the agents would
// undo each other's changes.
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
