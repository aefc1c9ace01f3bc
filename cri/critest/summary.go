// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package critest

import (
	"context"
	"time"

	"github.com/seed81659283/nodeagent/cri"
)

// SummaryRuntime is a [Runtime] whose lists omit the fields that package cri marks "detail", as in containerd. Only its
// cri.Inspector methods return them.
type SummaryRuntime struct{ *Runtime }

var (
	_ cri.Runtime   = SummaryRuntime{}
	_ cri.Inspector = SummaryRuntime{}
	_ cri.PodLister = SummaryRuntime{}
)

// List returns all sandboxes and containers, without details.
func (s SummaryRuntime) List(ctx context.Context) (cri.Snapshot, error) {
	snap, err := s.Runtime.List(ctx)
	hideDetails(snap.Sandboxes, snap.Containers)
	return snap, err
}

// ListPod returns the sandboxes and containers of the pod with this UID, without details. For an unknown pod it returns a Pod
// without sandboxes and containers.
func (s SummaryRuntime) ListPod(ctx context.Context, uid string) (cri.Pod, error) {
	pod, err := s.Runtime.ListPod(ctx, uid)
	hideDetails(pod.Sandboxes, pod.Containers)
	return pod, err
}

// SandboxStatus returns the sandbox with this ID and all its details.
func (s SummaryRuntime) SandboxStatus(ctx context.Context, id string) (status cri.Sandbox, err error) {
	call := s.recordCall(Call{Op: "PodSandboxStatus", ID: id})
	defer s.recordResult(call, &err)
	if err := ctx.Err(); err != nil {
		return cri.Sandbox{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sb := s.sandboxByID(id)
	if sb == nil {
		return cri.Sandbox{}, cri.ErrNotFound
	}
	return sb.Sandbox, nil
}

// ContainerStatus returns the container with this ID and all its details.
func (s SummaryRuntime) ContainerStatus(ctx context.Context, id string) (status cri.Container, err error) {
	call := s.recordCall(Call{Op: "ContainerStatus", ID: id})
	defer s.recordResult(call, &err)
	if err := ctx.Err(); err != nil {
		return cri.Container{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.containerByID(id)
	if c == nil {
		return cri.Container{}, cri.ErrNotFound
	}
	return c.Container, nil
}

// hideDetails clears the fields that the docs of package cri mark "detail".
func hideDetails(sandboxes []cri.Sandbox, containers []cri.Container) {
	for i := range sandboxes {
		sandboxes[i].IPs, sandboxes[i].Namespaces = nil, cri.NamespaceOptions{}
	}
	for i := range containers {
		c := &containers[i]
		c.StartedAt, c.FinishedAt = time.Time{}, time.Time{}
		c.ExitCode, c.Reason, c.Message = 0, "", ""
		c.Mounts, c.LogPath, c.Resources, c.User, c.StopSignal = nil, "", nil, nil, ""
	}
}
