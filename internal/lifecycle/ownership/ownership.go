// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package ownership says whose the sandboxes and containers of a runtime are that several agents share: each carries a label
// with the mark of the agent that made it. It knows nothing of what is wanted.
package ownership

import (
	"iter"
	"slices"

	"github.com/seed81659283/nodeagent/cri"
)

// Label is the label of sandboxes and containers that has the mark of their agent.
const Label = "nodeagent/owner"

// Mark is what an agent writes to [Label]. An agent with the empty one owns nothing, because nobody could tell.
type Mark string

// Write sets the label among those of a sandbox or a container. The pod may have brought one of its own.
func (m Mark) Write(labels map[string]string) {
	if m == "" {
		delete(labels, Label)
		return
	}
	labels[Label] = string(m)
}

// Owns reports whether anything of a pod of the runtime has the mark.
func (m Mark) Owns(p *cri.Pod) bool {
	for mark := range marks(p) {
		if m != "" && mark == m {
			return true
		}
	}
	return false
}

// Foreign returns another mark, or the empty one of nobody, that something of a pod of the runtime has.
func (m Mark) Foreign(p *cri.Pod) (other Mark, found bool) {
	for mark := range marks(p) {
		if mark != m {
			return mark, true
		}
	}
	return "", false
}

// Own returns what has the mark of a pod of the runtime, which stays as it is.
func (m Mark) Own(p cri.Pod) cri.Pod {
	p.Sandboxes = slices.DeleteFunc(slices.Clone(p.Sandboxes), func(s cri.Sandbox) bool { return s.Labels[Label] != string(m) })
	p.Containers = slices.DeleteFunc(slices.Clone(p.Containers), func(c cri.Container) bool { return c.Labels[Label] != string(m) })
	return p
}

// marks yields the mark of each sandbox and container.
func marks(p *cri.Pod) iter.Seq[Mark] {
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
