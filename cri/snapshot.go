// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"iter"
	"time"
)

// Snapshot contains all sandboxes and containers that a runtime listed at one time.
type Snapshot struct {
	Time       time.Time // before the call to the runtime: the objects are at least as recent
	Sandboxes  []Sandbox
	Containers []Container
}

// Pod contains all sandboxes and containers of one pod that a runtime listed.
type Pod struct {
	PodIdentity
	Time       time.Time   // before the call to the runtime
	Sandboxes  []Sandbox   // in the runtime's order
	Containers []Container // of all sandboxes, in the runtime's order
}

// Pods yields the pods of the snapshot with their sandboxes and containers. Pods with a sandbox come first, in the order of
// their first sandboxes. Pods with containers only follow. Objects without a pod UID are skipped.
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

// Pod returns the sandboxes and containers of the pod with this UID. For an unknown UID both are empty.
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
