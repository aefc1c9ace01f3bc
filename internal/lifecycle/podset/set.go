// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podset

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// Set has all pods that one source lists. lifecycle.PodSet has the contract of the fields.
type Set struct {
	Source     string
	Pods       []*corev1.Pod
	Incomplete bool
}

// Accepted is what [Accept] leaves of a set: no two of its pods have one name or one UID.
type Accepted struct {
	Set
	Refused []Refusal // pods with a UID that cannot be run and are not deleted: nothing is started for them, and what runs is not an orphan
}

// Refusal is a pod that its source does not get, or not as the source gave it.
type Refusal struct {
	Pod *corev1.Pod // nil: the set had a nil pod
	Err error       // names the pod
}

// Accept returns what a source wants from now on, and a refusal for each pod that is not among it or not as it was given. Of
// two pods with one name or UID the first counts. What becomes of a single pod the caller judges: judge gets what the source
// wanted with this UID before, or nil, and returns what it is to want, or nil, and why that is not the pod as it was given.
func Accept(before Accepted, set Set, judge func(old, pod *corev1.Pod) (*corev1.Pod, error)) (next Accepted, refusals []Refusal) {
	known := make(map[string]*corev1.Pod, len(before.Pods))
	for _, pod := range before.Pods {
		known[string(pod.UID)] = pod
	}
	next.Set = Set{Source: set.Source, Incomplete: set.Incomplete, Pods: make([]*corev1.Pod, 0, len(set.Pods))}
	names, uids := make(map[string]bool, len(set.Pods)), make(map[string]bool, len(set.Pods))
	for i, pod := range set.Pods {
		if pod == nil {
			refusals = append(refusals, Refusal{Err: fmt.Errorf("set of source %q: pod %d is nil", set.Source, i)})
			continue
		}
		name, uid := pod.Namespace+"/"+pod.Name, string(pod.UID)
		if names[name] || uids[uid] {
			refusals = append(refusals, Refusal{pod, fmt.Errorf("pod %s: another pod of the set has its name, or its UID %s", name, uid)})
			continue
		}
		names[name], uids[uid] = true, uid != ""
		accepted, err := judge(known[uid], pod)
		if err != nil {
			refusals = append(refusals, Refusal{pod, err})
		}
		switch {
		case accepted != nil:
			next.Pods = append(next.Pods, accepted)
		case uid != "" && pod.DeletionTimestamp == nil: // what runs of one that is deleted is an orphan
			next.Refused = append(next.Refused, Refusal{pod, err})
		}
	}
	return next, refusals
}

// Older reports whether a pod comes before another one where the oldest is first. Source: podsByCreationTime in
// pkg/kubelet/kubelet_pods.go.
func Older(a, b *corev1.Pod) bool {
	if a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.Namespace+"/"+a.Name < b.Namespace+"/"+b.Name
	}
	return a.CreationTimestamp.Before(&b.CreationTimestamp)
}
