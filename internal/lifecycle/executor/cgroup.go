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

// PodCgroups creates, limits and removes the cgroups of pods. lifecycle.PodCgroups has the contract of the methods.
type PodCgroups interface {
	// Exists reports whether the cgroup of a pod exists.
	Exists(ctx context.Context, pod *corev1.Pod) (bool, error)
	// Ensure prepares the cgroup of a pod for a start.
	Ensure(ctx context.Context, pod *corev1.Pod) error
	// Limit enforces the CPU quota of a pod.
	Limit(ctx context.Context, pod *corev1.Pod) error
	// Resize writes the limits of a running pod and of the listed containers.
	Resize(ctx context.Context, pod *corev1.Pod, containers []cgroups.ContainerResize, runtime cgroups.Resizer) error
	// Remove kills the processes of a pod and removes its cgroup.
	Remove(ctx context.Context, uid string) error
}

// LacksCgroup reports whether a pod of which something runs has no cgroup. Source: SyncPod in
// pkg/kubelet/kubelet.go.
func (x *Executor) LacksCgroup(ctx context.Context, pod *corev1.Pod, observed cri.Pod) (bool, error) {
	if x.node.Cgroups == nil || pod.DeletionTimestamp != nil || !podview.Running(observed) {
		return false, nil
	}
	exists, err := x.node.Cgroups.Exists(ctx, pod)
	return !exists && err == nil, err
}
