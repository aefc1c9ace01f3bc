// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"iter"
	"slices"

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

// marks yields whose the sandboxes and containers of a pod of the runtime are.
func marks(p *cri.Pod) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range p.Sandboxes {
			if !yield(p.Sandboxes[i].Labels[LabelOwner]) {
				return
			}
		}
		for i := range p.Containers {
			if !yield(p.Containers[i].Labels[LabelOwner]) {
				return
			}
		}
	}
}

// owns reports whether anything of a pod of the runtime was made by this agent, or one before it.
func (r *Reconciler) owns(p *cri.Pod) bool {
	for owner := range marks(p) {
		if r.owner != "" && owner == r.owner { // without one nobody knows
			return true
		}
	}
	return false
}

// foreign returns the mark of another agent, or of none, that something of a pod of the runtime has.
func (r *Reconciler) foreign(p *cri.Pod) (owner string, found bool) {
	for owner := range marks(p) {
		if owner != r.owner {
			return owner, true
		}
	}
	return "", false
}

// own returns what this agent has made of a pod.
func (r *Reconciler) own(p cri.Pod) cri.Pod {
	p.Sandboxes = slices.DeleteFunc(slices.Clone(p.Sandboxes), func(s cri.Sandbox) bool { return s.Labels[LabelOwner] != r.owner })
	p.Containers = slices.DeleteFunc(slices.Clone(p.Containers), func(c cri.Container) bool { return c.Labels[LabelOwner] != r.owner })
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
