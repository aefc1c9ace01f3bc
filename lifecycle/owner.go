// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/ownership"
	"github.com/seed81659283/nodeagent/internal/lifecycle/poddir"
)

// LabelOwner marks the sandboxes and containers of an agent. Only what carries the agent's own mark is taken down as
// an orphan, so that an agent on a shared runtime leaves the pods of others alone.
const LabelOwner = ownership.Label

// claim sets the owner of the pods of this agent. It locks Dirs.Pods, if there is one, until release is called.
func (r *Reconciler) claimOwner() (release func() error, err error) {
	owner, release := r.opts.Owner, func() error { return nil }
	if r.opts.Dirs.Pods != "" {
		var claimed *poddir.Claimed
		if claimed, err = poddir.Claim(r.opts.Dirs.Pods, owner); err == nil {
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

// shareOut returns what of a pod the worker may act upon. Where another agent runs a pod of this UID, that is nothing
// but to take down what the worker itself has made: two agents that both bring the pod to where they want it would
// never come to an end.
func (w *worker) filterOwned(observed cri.Pod, deleted bool) (cri.Pod, error) {
	owner, foreign := w.r.owner.Foreign(&observed)
	w.exec.Cleaner.SetShared(foreign)
	switch {
	case !foreign:
		return observed, nil
	case deleted:
		return w.r.owner.Own(observed), nil
	}
	return observed, fmt.Errorf("the runtime has containers of the pod that are another agent's: label %s is %.63q, not %q", LabelOwner, owner, w.r.owner)
}
