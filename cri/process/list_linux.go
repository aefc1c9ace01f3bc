// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"time"

	"github.com/seed81659283/nodeagent/cri"
)

// List returns all sandboxes and containers with all details, in order of creation.
func (r *Runtime) List(ctx context.Context) (cri.Snapshot, error) {
	snapshot, err := r.snapshot(ctx, func(string) bool { return true })
	return snapshot, wrapError("List", "", err)
}

// ListPod returns the sandboxes and containers of the pod with this UID, with all details. For an unknown UID both are empty.
func (r *Runtime) ListPod(ctx context.Context, uid string) (cri.Pod, error) {
	snapshot, err := r.snapshot(ctx, func(other string) bool { return other == uid })
	return snapshot.Pod(uid), wrapError("ListPod", uid, err)
}

// snapshot returns sandboxes and containers with their current states. It omits pods for whose UID accept returns false.
func (r *Runtime) snapshot(ctx context.Context, accept func(podUID string) bool) (cri.Snapshot, error) {
	s := cri.Snapshot{Time: time.Now()}
	if ctx.Err() != nil {
		return s, context.Cause(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return s, errClosed
	}
	for _, sb := range r.sandboxes {
		if accept(sb.Pod.UID) {
			s.Sandboxes = append(s.Sandboxes, sb.Sandbox)
		}
	}
	for _, c := range r.containers {
		if accept(c.PodUID) {
			_ = r.refreshState(c) // after an error the next list retries
			s.Containers = append(s.Containers, c.Container)
		}
	}
	return s, nil
}

// podIdentity returns the identity of a container's pod. If the sandbox was removed, it contains only the UID. The caller holds
// mu.
func (r *Runtime) podIdentity(ctr *container) cri.PodIdentity {
	for _, s := range r.sandboxes {
		if s.ID == ctr.SandboxID {
			return s.Pod
		}
	}
	return cri.PodIdentity{UID: ctr.PodUID}
}
