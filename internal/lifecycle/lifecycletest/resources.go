// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package lifecycletest has fake parts of a [lifecycle.Reconciler], for tests of agents without disk and volumes. The in-memory
// runtime is in package critest.
//
// The fakes persist nothing on disk. A test that restarts an agent passes the fake of the previous agent to the new agent.
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

// Call is a recorded call of [Resources].
type Call struct {
	Op        string // Prepare, Container, Update or Release
	UID       string // of the pod
	Container string // container name, for Op Container
}

// Resources is a fake lifecycle.PodResources: each volume is a path, and no file exists. The zero value is ready to use.
type Resources struct {
	// Refuse returns an error for each unsupported field of a pod. Nil: all pods are supported.
	Refuse func(pod *corev1.Pod) field.ErrorList
	// Fault is called by Prepare, Container and Release, without locks held. It may block, and its error is returned by that
	// method. Nil: all calls succeed at once.
	Fault func(ctx context.Context, c Call) error

	mu       sync.Mutex // guards all below
	calls    []Call
	prepared map[string]bool // by pod UID
}

var _ lifecycle.PodResources = (*Resources)(nil)

// Check returns the errors that Refuse returns for pod.
func (r *Resources) Check(pod *corev1.Pod) field.ErrorList {
	if r.Refuse == nil {
		return nil
	}
	return r.Refuse(pod)
}

// Prepare records that the volumes of pod are prepared, and returns the error of Fault. It records this even with an error,
// because a real implementation may fail after it has set up some volumes.
func (r *Resources) Prepare(ctx context.Context, pod *corev1.Pod) error {
	uid := string(pod.UID)
	r.mu.Lock()
	if r.prepared == nil {
		r.prepared = map[string]bool{}
	}
	r.prepared[uid] = true
	r.mu.Unlock()
	return r.recordCall(ctx, Call{Op: "Prepare", UID: uid})
}

// Update records the call and does nothing else.
func (r *Resources) Update(pod *corev1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, Call{Op: "Update", UID: string(pod.UID)})
}

// Container adds a host path for each volume of pod to launch, except for image volumes, which have no host path. It returns
// an error if Prepare was not called for the pod.
func (r *Resources) Container(ctx context.Context, pod *corev1.Pod, container *corev1.Container, launch *podspec.Launch) error {
	uid := string(pod.UID)
	if err := r.recordCall(ctx, Call{Op: "Container", UID: uid, Container: container.Name}); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.prepared[uid] {
		return fmt.Errorf("pod %s/%s: volumes are not prepared", pod.Namespace, pod.Name)
	}
	if launch.Volumes == nil {
		launch.Volumes = map[string]podspec.Volume{}
	}
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.Image == nil {
			launch.Volumes[v.Name] = podspec.Volume{HostPath: "/volumes/" + uid + "/" + v.Name}
		}
	}
	return nil
}

// Release removes all volumes of the pod with this UID.
func (r *Resources) Release(ctx context.Context, uid string) error {
	if err := r.recordCall(ctx, Call{Op: "Release", UID: uid}); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.prepared, uid)
	return nil
}

func (r *Resources) recordCall(ctx context.Context, call Call) error {
	r.mu.Lock()
	r.calls = append(r.calls, call)
	r.mu.Unlock()
	if r.Fault == nil {
		return nil
	}
	return r.Fault(ctx, call)
}

// Calls returns all recorded calls in order. Calls of Check are not recorded.
func (r *Resources) Calls() []Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

// PreparedPods returns the sorted UIDs of the pods with prepared volumes.
func (r *Resources) PreparedPods() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.prepared))
}
