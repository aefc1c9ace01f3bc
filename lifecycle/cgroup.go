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
	// Exists reports whether the cgroup of the pod exists.
	Exists(ctx context.Context, pod *corev1.Pod) (bool, error)
	// Ensure prepares the cgroup of a pod for the start of containers. If the cgroup is absent, Ensure creates it with its
	// limits. A cgroup with processes is unchanged. Ensure may omit or remove the CPU quota until Limit is called, because the
	// quota would slow down the runtime while it starts containers.
	Ensure(ctx context.Context, pod *corev1.Pod) error
	// Limit enforces the CPU quota of a pod that Ensure may have omitted. The Reconciler calls it when all containers of a start
	// run, but no later than Options.Pacing.StartSlotTimeout after the first of them. It also calls it once for each running pod
	// when the agent starts. A quota that is enforced already is no error.
	Limit(ctx context.Context, pod *corev1.Pod) error
	// Resize writes the limits of the pod's spec to the cgroup of a running pod, and calls runtime to set the limits of the
	// listed containers. At no time is the limit of a cgroup lower than that of its children. After an error, the next call
	// continues where the failed call stopped.
	Resize(ctx context.Context, pod *corev1.Pod, containers []cgroups.ContainerResize, runtime cgroups.Resizer) error
	// Remove kills the processes in the cgroup of a pod, and removes it. An absent cgroup is no error.
	Remove(ctx context.Context, uid string) error
}
