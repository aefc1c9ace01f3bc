// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/lifecycle/plan"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// PodVolumes sets up and releases the volumes of a pod. lifecycle.PodResources has the contract of the methods.
type PodVolumes interface {
	// Prepare sets up the volumes of a pod, and returns when they are ready.
	Prepare(ctx context.Context, pod *corev1.Pod) error
	// Container adds the mounts and devices of a container to l.
	Container(ctx context.Context, pod *corev1.Pod, c *corev1.Container, l *podspec.Launch) error
	// Update refreshes the volumes of a pod whose object has changed.
	Update(pod *corev1.Pod)
	// Release tears down the volumes of a pod.
	Release(ctx context.Context, uid string) error
}

// How long a Prepare and a Release may take before they are called again.
const (
	prepareTimeout = 2*time.Minute + 10*time.Second // 2 m 3 s of volume.Options.WaitTimeout, whose error says more, come first
	releaseTimeout = 2 * time.Minute
)

// Volumes are the [PodVolumes] of one pod.
type Volumes struct {
	node      *Node
	reporter  *Reporter
	waiting   *Waiting
	updated   *corev1.Pod // of the last PodVolumes.Update
	relabeled relabeled
}

// prepare makes the volumes of a pod ready for a start. Source: SyncPod in pkg/kubelet/kubelet.go.
func (v *Volumes) prepare(ctx context.Context, pod *corev1.Pod, a *plan.Actions) error {
	if v.node.Volumes == nil {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, prepareTimeout)
	defer cancel()
	err := v.node.Volumes.Prepare(limited, pod)
	if err == nil {
		return nil
	}
	for _, s := range a.Start {
		v.waiting.setError(s.Container.Name, podstatus.ReasonContainerCreating, err)
	}
	if ctx.Err() == nil {
		v.reporter.RecordWarning(podevents.ReasonFailedMountVolume, Subject{}, "Unable to attach or mount volumes: %v", err)
	}
	return fmt.Errorf("prepare volumes: %w", err)
}

// Update passes the newest version of the pod to the [PodVolumes].
func (v *Volumes) Update(pod *corev1.Pod) {
	if v.node.Volumes != nil && pod != v.updated {
		v.node.Volumes.Update(pod)
		v.updated = pod
	}
}

// addTo adds the volumes of a container to what it is launched with.
func (v *Volumes) addTo(ctx context.Context, pod *corev1.Pod, c *corev1.Container, sandboxID string, l *podspec.Launch) error {
	if v.node.Volumes != nil {
		if err := v.node.Volumes.Container(ctx, pod, c, l); err != nil {
			return err
		}
	}
	v.relabeled.skip(sandboxID, pod, c, l)
	return nil
}

// release releases the volumes of a pod of which nothing runs.
func (v *Volumes) release(ctx context.Context) error {
	if v.node.Volumes == nil {
		return nil
	}
	clear(v.relabeled)
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	if err := v.node.Volumes.Release(ctx, v.reporter.id.UID); err != nil {
		return fmt.Errorf("release volumes: %w", err)
	}
	return nil
}
