// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podset

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// Set has all pods that one source lists. lifecycle.PodSet documents the fields.
type Set struct {
	Source     string
	Pods       []*corev1.Pod
	Incomplete bool
}

// Accepted is a checked [Set]: its pods have unique names and UIDs.
type Accepted struct {
	Set
	Refused []Refusal // pods with a UID that cannot be run and are not deleted: nothing is started for them, and their running containers are not orphaned
}

// Refusal is a pod that is rejected or modified, and the reason.
type Refusal struct {
	Pod *corev1.Pod // nil: the set contained a nil pod
	Err error       // names the pod
}

// Accept checks the pods of a set and returns the accepted set. It rejects a pod whose name or UID occurred earlier in the
// set. For each other pod it calls judge with the pod of this UID in before, or nil, as old. judge returns pod to accept it,
// a changed copy and an error to accept only that copy, or nil and an error to reject pod. refusals has an entry for each
// error.
func Accept(before Accepted, set Set, judge func(old, pod *corev1.Pod) (*corev1.Pod, error)) (next Accepted, refusals []Refusal) {
	previous := make(map[string]*corev1.Pod, len(before.Pods))
	for _, pod := range before.Pods {
		previous[string(pod.UID)] = pod
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
			refusals = append(refusals, Refusal{pod, fmt.Errorf("pod %s: another pod of the set has this name or UID %s", name, uid)})
			continue
		}
		names[name], uids[uid] = true, uid != ""
		accepted, err := judge(previous[uid], pod)
		if err != nil {
			refusals = append(refusals, Refusal{pod, err})
		}
		switch {
		case accepted != nil:
			next.Pods = append(next.Pods, accepted)
		case uid != "" && pod.DeletionTimestamp == nil: // the containers of a deleted pod are orphaned
			next.Refused = append(next.Refused, Refusal{pod, err})
		}
	}
	return next, refusals
}

// IsOlder reports whether pod a was created before pod b. For equal creation times it compares the names. Source:
// podsByCreationTime in pkg/kubelet/kubelet_pods.go.
func IsOlder(a, b *corev1.Pod) bool {
	if a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.Namespace+"/"+a.Name < b.Namespace+"/"+b.Name
	}
	return a.CreationTimestamp.Before(&b.CreationTimestamp)
}
