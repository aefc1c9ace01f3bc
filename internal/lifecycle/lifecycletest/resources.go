// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package lifecycletest has stand-ins for what a [lifecycle.Reconciler] is given, for tests of agents without a disk and
// without volumes. The runtime that goes with them is in package critest.
//
// They do not model what is on a disk: what a pod has been given is known for as long as the value is, also to the next
// agent of a test that is given the same one.
package lifecycletest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

// Call is a call of a [Resources].
type Call struct {
	Op        string // Prepare, Container, Update or Release
	UID       string // of the pod
	Container string // its name, for Container
}

// Resources are the volumes of pods in memory: each is a path, and nothing is there. The zero value is ready to use.
type Resources struct {
	// Refuse returns an error for each field of a pod that cannot be had. Nil: all can.
	Refuse func(pod *corev1.Pod) field.ErrorList
	// Fault is called in each call, with no lock held. It may take its time, and its error is that of the call. Nil: all
	// succeed at once.
	Fault func(ctx context.Context, c Call) error

	mu    sync.Mutex // guards all below
	calls []Call
	held  map[string]bool // by pod UID
}

var _ lifecycle.PodResources = (*Resources)(nil)

// Check returns what Refuse does.
func (r *Resources) Check(pod *corev1.Pod) field.ErrorList {
	if r.Refuse == nil {
		return nil
	}
	return r.Refuse(pod)
}

// Prepare gives a pod its volumes. Where it fails the pod may have some of them, as with a real one.
func (r *Resources) Prepare(ctx context.Context, pod *corev1.Pod) error {
	uid := string(pod.UID)
	r.mu.Lock()
	if r.held == nil {
		r.held = map[string]bool{}
	}
	r.held[uid] = true
	r.mu.Unlock()
	return r.call(ctx, Call{Op: "Prepare", UID: uid})
}

// Update takes note that the pod has changed.
func (r *Resources) Update(pod *corev1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, Call{Op: "Update", UID: string(pod.UID)})
}

// Container adds a path for each volume of the pod but for images. That of a pod that was not prepared is an error.
func (r *Resources) Container(ctx context.Context, pod *corev1.Pod, c *corev1.Container, l *podspec.Launch) error {
	uid := string(pod.UID)
	if err := r.call(ctx, Call{Op: "Container", UID: uid, Container: c.Name}); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.held[uid] {
		return fmt.Errorf("pod %s/%s: its volumes are not prepared", pod.Namespace, pod.Name)
	}
	if l.Volumes == nil {
		l.Volumes = map[string]podspec.Volume{}
	}
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.Image == nil {
			l.Volumes[v.Name] = podspec.Volume{HostPath: "/volumes/" + uid + "/" + v.Name}
		}
	}
	return nil
}

// Release takes all volumes of a pod.
func (r *Resources) Release(ctx context.Context, uid string) error {
	if err := r.call(ctx, Call{Op: "Release", UID: uid}); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.held, uid)
	return nil
}

func (r *Resources) call(ctx context.Context, c Call) error {
	r.mu.Lock()
	r.calls = append(r.calls, c)
	r.mu.Unlock()
	if r.Fault == nil {
		return nil
	}
	return r.Fault(ctx, c)
}

// Calls returns all calls but those of Check, in the order in which they began.
func (r *Resources) Calls() []Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

// Held returns the UIDs of the pods that have volumes.
func (r *Resources) Held() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.held))
}
