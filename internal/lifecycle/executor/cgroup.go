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

// PodCgroups keeps the cgroups that hold whole pods to their limits. *podtree.Tree is one. The runtime gets their
// names from podspec.Options.CgroupParent, which lifecycle.New asks the PodCgroups for where it is nil.
type PodCgroups interface {
	// Exists reports whether the cgroup of a pod is there.
	Exists(ctx context.Context, pod *corev1.Pod) (bool, error)
	// Ensure makes the cgroup of a pod ready for a start: it creates it with its limits, and leaves one in which something
	// runs as it is. The CPU quota alone may be left out, or be lifted where it is in force, until Limit is called: what
	// the runtime does in the cgroup to start a container is then not slowed down.
	Ensure(ctx context.Context, pod *corev1.Pod) error
	// Limit puts the CPU quota of a pod in force. It is called when the containers of a start run, at the latest
	// Options.Pacing.SlowAfter after the first of them, and once for each pod that a new agent finds running. One that is in
	// force is success.
	Limit(ctx context.Context, pod *corev1.Pod) error
	// Resize gives the cgroup of a pod that runs the limits of its spec, and those of its containers that are named what
	// they are to have, in an order in which nothing is ever less than what it holds. It tells the runtime, which gives
	// the containers what is theirs, and goes on from where it was when it is called again after an error.
	Resize(ctx context.Context, pod *corev1.Pod, containers []cgroups.ContainerResize, runtime cgroups.Resizer) error
	// Remove kills what still runs in the cgroup of a pod, and removes it. An absent one is success.
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
