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

// API is the name of this source, as the kubelet has it.
const API = "api"

// Annotations of which no user's value counts (pkg/kubelet/types/pod_update.go).
const (
	annotationSource = "kubernetes.io/config.source"
	annotationSeen   = "kubernetes.io/config.seen"
)

// Update is all that the API server has for the node.
type Update struct {
	// Set has the pods that are to be run. They are shared and must not be changed. Its source is [API]. It is incomplete
	// only while the node has more pods than are taken and one that is left out may run.
	lifecycle.PodSet
	// Mirrors are the mirror pods, which stand for static pods and are not run. They are as the API server has them.
	Mirrors []*corev1.Pod
	// Errs are about pods that are left out: each names one. They hold for as long as it is there.
	Errs []error
}

// Merge returns what a node is to run of the pods that an API server lists for it, in their order. A pod whose version is that
// of the update before keeps its pointer, so that consumers can compare pointers. In the others
// kubernetes.io/config.source is "api" and kubernetes.io/config.seen is not there, whatever a user wrote, so that no annotation makes
// a pod static: they are shallow copies with annotations of their own, unless they were listed like that. What is listed is not changed.
//
// Pods of another node are left out, as are those without a name, namespace or UID, which no API server has.
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

func podUID(pod *corev1.Pod) types.UID {
	if pod == nil {
		return ""
	}
	return pod.UID
}

// usable returns why a pod cannot be one of the node, or nil.
func checkPod(pod *corev1.Pod, node string) error {
	switch {
	case pod == nil:
		return fmt.Errorf("pods of node %s: one of the list is nil", node)
	case pod.Name == "" || pod.Namespace == "" || pod.UID == "":
		return fmt.Errorf("pod %s/%s: metadata.uid %q: name, namespace and UID: required", pod.Namespace, pod.Name, pod.UID)
	case pod.Spec.NodeName != node:
		return fmt.Errorf("pod %s/%s: spec.nodeName: %q is not this node, %q", pod.Namespace, pod.Name, pod.Spec.NodeName, node)
	}
	return nil
}

// adopt returns a pod as one of this source: itself, where it is one.
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

// equal reports whether two updates say the same, by pointers.
func (u Update) isEqual(other Update) bool {
	return u.Incomplete == other.Incomplete && slices.Equal(u.Pods, other.Pods) && slices.Equal(u.Mirrors, other.Mirrors) &&
		slices.EqualFunc(u.Errs, other.Errs, func(a, b error) bool { return a.Error() == b.Error() })
}
