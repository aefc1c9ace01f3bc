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

// Retainer drops watches and cached copies of objects that no pod refers to any more: neither a pod that the API server lists nor
// a pod that the agent works on. Its methods may be called from any goroutine.
type Retainer struct {
	source  *Source
	objects *Objects
	pods    func() []lifecycle.PodState

	mu     sync.Mutex    // guards the fields below
	listed []*corev1.Pod // pods that the API server lists
}

// Retainer returns a [Retainer]. It drops the watches and cached copies in objects that no pod needs any more. pods must
// return all pods of the agent, for example [lifecycle.Reconciler.Pods]. The method panics if an argument is nil.
func (s *Source) Retainer(objects *Objects, pods func() []lifecycle.PodState) *Retainer {
	required.MustArgs("Source.Retainer", required.Arg{Name: "objects", Value: objects, Hint: "Source.Objects"},
		required.Arg{Name: "pods", Value: pods, Hint: "lifecycle.Reconciler.Pods"})
	return &Retainer{source: s, objects: objects, pods: pods}
}

// Set drops the API objects that no pod refers to any more. If set contains the pods of the API server, Set first records
// these pods.
func (r *Retainer) Set(set lifecycle.PodSet) {
	if set.Source == API {
		r.mu.Lock()
		r.listed = set.Pods
		r.mu.Unlock()
	}
	r.dropUnreferenced("")
}

// PodRemoved drops the API objects that only the removed pod referred to. Use it as the lifecycle hook PodRemoved.
func (r *Retainer) PodRemoved(uid string) { r.dropUnreferenced(uid) }

// dropUnreferenced drops the API objects to which no pod refers, except perhaps the removed pod.
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
