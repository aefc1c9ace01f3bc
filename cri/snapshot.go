// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"iter"
	"time"
)

// Snapshot is everything a runtime holds at one time.
type Snapshot struct {
	Time       time.Time // before the runtime was asked; what it says is at least as new
	Sandboxes  []Sandbox
	Containers []Container
}

// Pod is everything a runtime holds of one pod.
type Pod struct {
	PodIdentity
	Time       time.Time   // before the runtime was asked
	Sandboxes  []Sandbox   // in the runtime's order
	Containers []Container // in the runtime's order, of all sandboxes
}

// Pods yields the snapshot pod by pod, in the order in which their first sandbox, or else their first container,
// is listed. Objects without a pod UID belong to no pod and are left out.
func (s Snapshot) Pods() iter.Seq[Pod] {
	return func(yield func(Pod) bool) {
		index := make(map[string]int, len(s.Sandboxes))
		pods := make([]Pod, 0, len(s.Sandboxes))
		of := func(uid string) *Pod {
			i, ok := index[uid]
			if !ok {
				i = len(pods)
				index[uid] = i
				pods = append(pods, Pod{PodIdentity: PodIdentity{UID: uid}, Time: s.Time})
			}
			return &pods[i]
		}
		for _, sb := range s.Sandboxes {
			if sb.Pod.UID == "" {
				continue
			}
			p := of(sb.Pod.UID)
			p.PodIdentity = sb.Pod
			p.Sandboxes = append(p.Sandboxes, sb)
		}
		for _, c := range s.Containers {
			if c.PodUID == "" {
				continue
			}
			p := of(c.PodUID)
			p.Containers = append(p.Containers, c)
		}
		for _, p := range pods {
			if !yield(p) {
				return
			}
		}
	}
}

// Pod returns the part of the snapshot that belongs to one pod.
func (s Snapshot) Pod(uid string) Pod {
	p := Pod{PodIdentity: PodIdentity{UID: uid}, Time: s.Time}
	for _, sb := range s.Sandboxes {
		if sb.Pod.UID == uid {
			p.PodIdentity = sb.Pod
			p.Sandboxes = append(p.Sandboxes, sb)
		}
	}
	for _, c := range s.Containers {
		if c.PodUID == uid {
			p.Containers = append(p.Containers, c)
		}
	}
	return p
}
