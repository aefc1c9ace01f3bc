// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle/poddir"
)

// LabelOwner marks the sandboxes and containers of an agent. Only what carries the agent's own mark is taken down as
// an orphan, so that an agent on a shared runtime leaves the pods of others alone.
const LabelOwner = "nodeagent/owner"

// claim makes Dirs.Pods this agent's alone, until release is called, and finds out what its pods are marked with.
func (r *Reconciler) claim() (release func() error, err error) {
	r.owner = r.opts.Owner
	if r.opts.Dirs.Pods == "" {
		return func() error { return nil }, nil
	}
	r.owner, release, err = poddir.Claim(r.opts.Dirs.Pods, r.owner)
	return release, err
}

// mark writes to the labels of a sandbox or a container whose it is.
func (r *Reconciler) mark(labels map[string]string) {
	if r.owner == "" {
		delete(labels, LabelOwner) // the pod may have brought one
		return
	}
	labels[LabelOwner] = r.owner
}

// owns reports whether anything of a pod of the runtime was made by this agent, or one before it.
func (r *Reconciler) owns(p *cri.Pod) bool {
	if r.owner == "" {
		return false // nobody knows
	}
	for i := range p.Sandboxes {
		if p.Sandboxes[i].Labels[LabelOwner] == r.owner {
			return true
		}
	}
	for i := range p.Containers {
		if p.Containers[i].Labels[LabelOwner] == r.owner {
			return true
		}
	}
	return false
}

// foreign returns the mark of another agent, or of none, that something of a pod of the runtime has.
func (r *Reconciler) foreign(p *cri.Pod) (owner string, found bool) {
	for i := range p.Sandboxes {
		if owner := p.Sandboxes[i].Labels[LabelOwner]; owner != r.owner {
			return owner, true
		}
	}
	for i := range p.Containers {
		if owner := p.Containers[i].Labels[LabelOwner]; owner != r.owner {
			return owner, true
		}
	}
	return "", false
}

// own returns what this agent has made of a pod.
func (r *Reconciler) own(p cri.Pod) cri.Pod {
	sandboxes, containers := p.Sandboxes, p.Containers
	p.Sandboxes, p.Containers = nil, nil
	for i := range sandboxes {
		if sandboxes[i].Labels[LabelOwner] == r.owner {
			p.Sandboxes = append(p.Sandboxes, sandboxes[i])
		}
	}
	for i := range containers {
		if containers[i].Labels[LabelOwner] == r.owner {
			p.Containers = append(p.Containers, containers[i])
		}
	}
	return p
}

// shareOut returns what of a pod the worker may act upon. Where another agent runs a pod of this UID, that is nothing
// but to take down what the worker itself has made: two agents that both bring the pod to where they want it would
// never come to an end.
func (w *worker) shareOut(observed cri.Pod, deleted bool) (cri.Pod, error) {
	owner, foreign := w.r.foreign(&observed)
	w.exec.SetShared(foreign)
	switch {
	case !foreign:
		return observed, nil
	case deleted:
		return w.r.own(observed), nil
	}
	return observed, fmt.Errorf("the runtime has containers of the pod that are another agent's: label %s is %.63q, not %q", LabelOwner, owner, w.r.owner)
}
