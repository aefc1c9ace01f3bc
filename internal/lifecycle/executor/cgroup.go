// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podview"
)

// PodCgroups creates, limits and removes the cgroups of pods. The interface of the same name in package lifecycle documents the
// contract.
type PodCgroups interface {
	// Exists reports whether the cgroup of pod exists.
	Exists(ctx context.Context, pod *corev1.Pod) (bool, error)
	// Ensure creates the cgroup of pod before its containers start. It may leave the CPU quota unlimited for the start.
	Ensure(ctx context.Context, pod *corev1.Pod) error
	// Limit enforces the CPU quota of pod.
	Limit(ctx context.Context, pod *corev1.Pod) error
	// Resize writes the limits of a running pod, and of the given containers through runtime.
	Resize(ctx context.Context, pod *corev1.Pod, containers []cgroups.ContainerResize, runtime cgroups.Resizer) error
	// Remove kills the remaining processes of the pod and removes its cgroup.
	Remove(ctx context.Context, uid string) error
}

// IsCgroupMissing reports whether the pod has a running container but no cgroup, for example because an administrator
// removed it. It is false for a deleted pod, and if the runtime manages the cgroups. Source: SyncPod in
// pkg/kubelet/kubelet.go.
func (x *Executor) IsCgroupMissing(ctx context.Context, pod *corev1.Pod, observed cri.Pod) (bool, error) {
	if x.node.Cgroups == nil || pod.DeletionTimestamp != nil || !podview.IsRunning(observed) {
		return false, nil
	}
	exists, err := x.node.Cgroups.Exists(ctx, pod)
	return !exists && err == nil, err
}
