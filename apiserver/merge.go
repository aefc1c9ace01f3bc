// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/qos"
)

// API is the name of the pod source that this package implements, the same as in the kubelet.
const API = "api"

// Annotations that the agent sets or removes, so that users cannot set them (pkg/kubelet/types/pod_update.go).
const (
	annotationSource = "kubernetes.io/config.source"
	annotationSeen   = "kubernetes.io/config.seen"
)

// Update is the complete set of pods that the API server lists for the node.
type Update struct {
	// PodSet has the pods to run, from the source [API]. They are shared and must not be changed. The set is incomplete only
	// while the node has more pods than the limit and an omitted pod may run.
	lifecycle.PodSet
	// Mirrors are the mirror pods of static pods, unchanged. The node does not run them.
	Mirrors []*corev1.Pod
	// Errs has one error for each invalid pod, which is omitted. An error is repeated in each Update until its pod changes.
	Errs []error
}

// Merge returns the Update for the pods that the API server lists, in their order. A pod whose resource version has not
// changed since the previous Update, before, keeps its pointer from there. Merge does not change the listed pods.
//
// In each returned pod, the annotation kubernetes.io/config.source is "api" and kubernetes.io/config.seen is removed, so
// that no user can make a pod static. Update.Errs contains an error for each pod of another node, and for each pod without
// name, namespace or UID.
func Merge(before Update, listed []*corev1.Pod, node string) Update {
	previousByUID := make(map[types.UID]*corev1.Pod, len(before.Pods))
	for _, pod := range before.Pods {
		previousByUID[pod.UID] = pod
	}
	next := Update{PodSet: lifecycle.PodSet{Source: API, Shared: true, Pods: make([]*corev1.Pod, 0, len(listed))}}
	for _, pod := range listed {
		err := checkPod(pod, node)
		switch previous := previousByUID[podUID(pod)]; {
		case err != nil:
			next.Errs = append(next.Errs, err)
		case qos.IsMirror(pod):
			next.Mirrors = append(next.Mirrors, pod)
		case previous != nil && pod.ResourceVersion != "" && previous.ResourceVersion == pod.ResourceVersion:
			next.Pods = append(next.Pods, previous)
		default:
			next.Pods = append(next.Pods, withAPISource(pod))
		}
	}
	return next
}

// podUID returns the UID of pod, which may be nil.
func podUID(pod *corev1.Pod) types.UID {
	if pod == nil {
		return ""
	}
	return pod.UID
}

// checkPod returns an error that names the invalid field if the pod lacks a name, namespace or UID or is not bound to the
// node.
func checkPod(pod *corev1.Pod, node string) error {
	switch {
	case pod == nil:
		return fmt.Errorf("pods of node %s: the list contains a nil pod", node)
	case pod.Name == "" || pod.Namespace == "" || pod.UID == "":
		return fmt.Errorf("pod %s/%s: metadata.uid %q: name, namespace and UID: required", pod.Namespace, pod.Name, pod.UID)
	case pod.Spec.NodeName != node:
		return fmt.Errorf("pod %s/%s: spec.nodeName: %q is not this node, %q", pod.Namespace, pod.Name, pod.Spec.NodeName, node)
	}
	return nil
}

// withAPISource returns the pod, or a shallow copy, with the source annotation "api" and without managed fields.
func withAPISource(pod *corev1.Pod) *corev1.Pod {
	if _, seen := pod.Annotations[annotationSeen]; !seen && pod.Annotations[annotationSource] == API && pod.ManagedFields == nil {
		return pod
	}
	adopted := *pod
	adopted.Annotations = make(map[string]string, len(pod.Annotations)+1)
	maps.Copy(adopted.Annotations, pod.Annotations)
	delete(adopted.Annotations, annotationSeen)
	adopted.Annotations[annotationSource] = API
	adopted.ManagedFields = nil
	return &adopted
}

// isEqual reports whether u and other contain the same pod pointers and equal errors. If so, the consumer of updates need
// not be called.
func (u Update) isEqual(other Update) bool {
	return u.Incomplete == other.Incomplete && slices.Equal(u.Pods, other.Pods) && slices.Equal(u.Mirrors, other.Mirrors) &&
		slices.EqualFunc(u.Errs, other.Errs, func(a, b error) bool { return a.Error() == b.Error() })
}
