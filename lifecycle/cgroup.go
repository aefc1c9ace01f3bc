// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups"
)

// PodCgroups creates, limits and removes the cgroups of pods. *podtree.Tree implements it. The runtime gets the names of the cgroups from
// Options.Spec.CgroupParent. If that is nil, the PodCgroups must implement [CgroupNamer].
type PodCgroups interface {
	// Exists reports whether the cgroup of a pod exists.
	Exists(ctx context.Context, pod *corev1.Pod) (bool, error)
	// Ensure prepares the cgroup of a pod for the start of containers. It creates an absent cgroup with its limits, and leaves a cgroup with
	// processes unchanged. It may leave out or lift the CPU quota until Limit is called, so that the quota does not slow down the runtime's own
	// work in the cgroup.
	Ensure(ctx context.Context, pod *corev1.Pod) error
	// Limit enforces the CPU quota of a pod. The Reconciler calls it when the containers of a start run, at the latest
	// Options.Pacing.StartSlotTimeout after the first of them, and once for each pod that runs when the agent starts. A quota that is already
	// enforced is no error.
	Limit(ctx context.Context, pod *corev1.Pod) error
	// Resize writes the limits of the pod's spec to the cgroup of a running pod, and the limits of the listed containers by calling runtime.
	// At no time is the limit of a cgroup below the limits of its children. A call after an error continues where the previous call failed.
	Resize(ctx context.Context, pod *corev1.Pod, containers []cgroups.ContainerResize, runtime cgroups.Resizer) error
	// Remove kills the processes in the cgroup of a pod, and removes it. An absent cgroup is no error.
	Remove(ctx context.Context, uid string) error
}
