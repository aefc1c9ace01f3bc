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

// SetLabel sets the owner label in labels to m. It replaces an owner label that the user has set on the pod. If m is empty,
// it removes the label.
func (m Mark) SetLabel(labels map[string]string) {
	if m == "" {
		delete(labels, Label)
		return
	}
	labels[Label] = string(m)
}

// Owns reports whether a sandbox or container of pod has the mark m. It returns false if m is empty.
func (m Mark) Owns(pod *cri.Pod) bool {
	for mark := range listMarks(pod) {
		if m != "" && mark == m {
			return true
		}
	}
	return false
}

// ForeignMark returns the first mark of a sandbox or container of pod that differs from m. A missing owner label is an empty
// mark. found is false if all sandboxes and containers have the mark m.
func (m Mark) ForeignMark(pod *cri.Pod) (other Mark, found bool) {
	for mark := range listMarks(pod) {
		if mark != m {
			return mark, true
		}
	}
	return "", false
}

// Filter returns a copy of pod with only the sandboxes and containers that have the mark m.
func (m Mark) Filter(pod cri.Pod) cri.Pod {
	pod.Sandboxes = slices.DeleteFunc(slices.Clone(pod.Sandboxes), func(s cri.Sandbox) bool { return s.Labels[Label] != string(m) })
	pod.Containers = slices.DeleteFunc(slices.Clone(pod.Containers), func(c cri.Container) bool { return c.Labels[Label] != string(m) })
	return pod
}

// listMarks yields the mark of each sandbox and container of pod.
func listMarks(pod *cri.Pod) iter.Seq[Mark] {
	return func(yield func(Mark) bool) {
		for i := range pod.Sandboxes {
			if !yield(Mark(pod.Sandboxes[i].Labels[Label])) {
				return
			}
		}
		for i := range pod.Containers {
			if !yield(Mark(pod.Containers[i].Labels[Label])) {
				return
			}
		}
	}
}
