// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/lifecycle/plan"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// PodResources are what a pod has on its node beside its sandbox and containers, such as volumes. Calls for one pod come one
// after the other; those for several do not wait for each other. All end when ctx does: a call that hangs delays its pod.
// A Prepare and a Release have some two minutes, and are called again. Package lifecycletest has one in memory.
type PodResources interface {
	// Check returns an error for each field of a valid pod that asks for something that cannot be had. It is quick and asks
	// nobody.
	Check(pod *corev1.Pod) field.ErrorList
	// Prepare makes ready what a pod needs, and returns when it is. It is called before the sandbox and before each start of
	// containers, and is quick where nothing is left to do. What it has made when it fails is given back by Release.
	Prepare(ctx context.Context, pod *corev1.Pod) error
	// Container adds what a container gets of it to what its config is made from, before each start and after Prepare.
	Container(ctx context.Context, pod *corev1.Pod, c *corev1.Container, l *podspec.Launch) error
	// Update says that a pod which is wanted has a new object, such as other labels, or a new agent. What it has is brought up
	// to date. It does not wait.
	Update(pod *corev1.Pod)
	// Release gives back all that the pod of a UID has. Nothing of the pod runs. It is called when the pod has terminated,
	// and before its directory and its cgroup are removed: also for an orphaned pod, of which perhaps only the record in
	// its directory is left, and for one that has nothing, which is success. After an error it is called again, and the
	// pod stays known.
	Release(ctx context.Context, uid string) error
}

// How long a Prepare and a Release may take before they are called again.
const (
	prepareTimeout = 2*time.Minute + 10*time.Second // volume.Options.Wait, which says more, is 2 m 3 s
	releaseTimeout = 2 * time.Minute
)

// prepare makes the resources of a pod ready for a start. Source: SyncPod in pkg/kubelet/kubelet.go.
func (x *Executor) prepare(ctx context.Context, pod *corev1.Pod, a *plan.Actions) error {
	if x.node.Volumes == nil {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, prepareTimeout)
	defer cancel()
	err := x.node.Volumes.Prepare(limited, pod)
	if err == nil {
		return nil
	}
	for _, s := range a.Start {
		x.Waiting.setError(s.Container.Name, podstatus.ReasonContainerCreating, err)
	}
	if ctx.Err() == nil {
		x.RecordWarning(EventFailedMountVolume, Subject{}, "Unable to attach or mount volumes: %v", err)
	}
	return fmt.Errorf("prepare volumes: %w", err)
}

// Update tells the resources of a pod how it is wanted now.
func (x *Executor) Update(pod *corev1.Pod) {
	if x.node.Volumes != nil && pod != x.pod.told {
		x.node.Volumes.Update(pod)
		x.pod.told = pod
	}
}

// addResources adds what a container gets of the pod's resources to what it is launched with.
func (x *Executor) addResources(ctx context.Context, pod *corev1.Pod, c *corev1.Container, l *podspec.Launch) error {
	if x.node.Volumes == nil {
		return nil
	}
	return x.node.Volumes.Container(ctx, pod, c, l)
}

// Release gives back the resources of a pod of which nothing runs.
func (x *Executor) Release(ctx context.Context) error {
	if x.node.Volumes == nil || x.pod.shared { // another agent runs the pod
		return nil
	}
	clear(x.pod.labels)
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	if err := x.node.Volumes.Release(ctx, x.id.UID); err != nil {
		return fmt.Errorf("release volumes: %w", err)
	}
	return nil
}
