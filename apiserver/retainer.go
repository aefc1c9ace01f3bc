// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/required"
	"github.com/seed81659283/nodeagent/lifecycle"
)

// Retainer drops objects that no pod refers to any more. The pods are those that the API server wants on the node, and those that the agent works
// on. Methods may be called from any goroutine.
type Retainer struct {
	source  *Source
	objects *Objects
	pods    func() []lifecycle.PodState

	mu     sync.Mutex    // guards what follows
	listed []*corev1.Pod // by the API server
}

// Retainer returns a Retainer of objects for the pods that the agent works on, such as lifecycle.Reconciler.Pods. It panics if an
// argument is nil.
func (s *Source) Retainer(objects *Objects, pods func() []lifecycle.PodState) *Retainer {
	required.MustArgs("Source.Retainer", required.Arg{Name: "objects", Value: objects, Hint: "Source.Objects"},
		required.Arg{Name: "pods", Value: pods, Hint: "lifecycle.Reconciler.Pods"})
	return &Retainer{source: s, objects: objects, pods: pods}
}

// Set records the pods that the API server wants, and drops the objects of other pods. The pods of another source change nothing.
func (r *Retainer) Set(set lifecycle.PodSet) {
	if set.Source == API {
		r.mu.Lock()
		r.listed = set.Pods
		r.mu.Unlock()
	}
	r.dropUnreferenced("")
}

// PodRemoved drops the objects of a pod of which nothing is left.
func (r *Retainer) PodRemoved(uid string) { r.dropUnreferenced(uid) }

// retain drops the objects that no pod except gone refers to. Before the API server has listed the pods it drops none.
func (r *Retainer) dropUnreferenced(removedUID string) {
	if !r.source.Pods().isSynced() {
		return
	}
	r.mu.Lock()
	pods := slices.Clone(r.listed)
	r.mu.Unlock()
	for _, p := range r.pods() {
		if p.Spec != nil {
			pods = append(pods, p.Spec)
		}
	}
	r.objects.Retain(slices.DeleteFunc(pods, func(pod *corev1.Pod) bool { return string(pod.UID) == removedUID }))
}
