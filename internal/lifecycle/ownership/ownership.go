// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package ownership decides which agent owns the sandboxes and containers of a runtime that several agents share. Each sandbox
// and container has a label, whose value (mark) identifies the agent that created it. Objects of a kubelet have no such label.
package ownership

import (
	"iter"
	"slices"

	"github.com/seed81659283/nodeagent/cri"
)

// Label is the label of sandboxes and containers whose value (mark) identifies the agent that created them.
const Label = "nodeagent/owner"

// Owner is an agent that owns sandboxes and containers. The zero value owns nothing.
type Owner struct {
	Mark            string // value of the label [Label]
	AdoptsUnlabeled bool   // sandboxes and containers without the label are also owned
}

// SetLabel sets labels[Label] to o.Mark, which identifies the agent. It overwrites a value that the user has set on the pod. If
// o.Mark is empty, it removes the label.
func (o Owner) SetLabel(labels map[string]string) {
	if o.Mark == "" {
		delete(labels, Label)
		return
	}
	labels[Label] = o.Mark
}

// Owns reports whether the agent owns a sandbox or container of pod. It returns false if o.Mark is empty.
func (o Owner) Owns(pod *cri.Pod) bool {
	for mark := range listMarks(pod) {
		if o.Mark != "" && o.hasMark(mark) {
			return true
		}
	}
	return false
}

// ForeignMark returns the value of the label [Label] of the first sandbox or container of pod that the agent does not own. The
// value is empty if the label is missing. found is false if the agent owns all sandboxes and containers.
func (o Owner) ForeignMark(pod *cri.Pod) (other string, found bool) {
	for mark := range listMarks(pod) {
		if !o.hasMark(mark) {
			return mark, true
		}
	}
	return "", false
}

// Filter returns a copy of pod with only the sandboxes and containers that the agent owns.
func (o Owner) Filter(pod cri.Pod) cri.Pod {
	pod.Sandboxes = slices.DeleteFunc(slices.Clone(pod.Sandboxes), func(s cri.Sandbox) bool { return !o.hasMark(s.Labels[Label]) })
	pod.Containers = slices.DeleteFunc(slices.Clone(pod.Containers), func(c cri.Container) bool { return !o.hasMark(c.Labels[Label]) })
	return pod
}

// hasMark reports whether the agent owns a sandbox or container whose label [Label] has the value mark. mark is empty if the
// label is missing.
func (o Owner) hasMark(mark string) bool {
	return mark == o.Mark || mark == "" && o.AdoptsUnlabeled
}

// listMarks yields the value of the label [Label] of each sandbox and container of pod.
func listMarks(pod *cri.Pod) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range pod.Sandboxes {
			if !yield(pod.Sandboxes[i].Labels[Label]) {
				return
			}
		}
		for i := range pod.Containers {
			if !yield(pod.Containers[i].Labels[Label]) {
				return
			}
		}
	}
}
