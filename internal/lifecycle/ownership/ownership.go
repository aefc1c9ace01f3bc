// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package ownership decides which agent owns the sandboxes and containers of a runtime that several agents share. Each sandbox
// and container has a label with the mark of the agent that created it.
package ownership

import (
	"iter"
	"slices"

	"github.com/seed81659283/nodeagent/cri"
)

// Label is the label of sandboxes and containers that holds the [Mark] of their agent.
const Label = "nodeagent/owner"

// Mark identifies an agent in the label [Label]. An agent with an empty mark owns nothing.
type Mark string

// SetLabel sets the owner label in labels, and replaces an owner label that the pod itself has.
func (m Mark) SetLabel(labels map[string]string) {
	if m == "" {
		delete(labels, Label)
		return
	}
	labels[Label] = string(m)
}

// Owns reports whether a sandbox or container of p has the mark m.
func (m Mark) Owns(p *cri.Pod) bool {
	for mark := range listMarks(p) {
		if m != "" && mark == m {
			return true
		}
	}
	return false
}

// ForeignMark returns a mark other than m of a sandbox or container of p. An object without the label has an empty mark.
func (m Mark) ForeignMark(p *cri.Pod) (other Mark, found bool) {
	for mark := range listMarks(p) {
		if mark != m {
			return mark, true
		}
	}
	return "", false
}

// Filter returns a copy of p with only the sandboxes and containers that have the mark m.
func (m Mark) Filter(p cri.Pod) cri.Pod {
	p.Sandboxes = slices.DeleteFunc(slices.Clone(p.Sandboxes), func(s cri.Sandbox) bool { return s.Labels[Label] != string(m) })
	p.Containers = slices.DeleteFunc(slices.Clone(p.Containers), func(c cri.Container) bool { return c.Labels[Label] != string(m) })
	return p
}

// listMarks yields the mark of each sandbox and container of p.
func listMarks(p *cri.Pod) iter.Seq[Mark] {
	return func(yield func(Mark) bool) {
		for i := range p.Sandboxes {
			if !yield(Mark(p.Sandboxes[i].Labels[Label])) {
				return
			}
		}
		for i := range p.Containers {
			if !yield(Mark(p.Containers[i].Labels[Label])) {
				return
			}
		}
	}
}
