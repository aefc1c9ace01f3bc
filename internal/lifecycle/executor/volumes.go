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

// PodVolumes sets up and releases the volumes of a pod. lifecycle.PodResources documents the contract.
type PodVolumes interface {
	// Prepare sets up the volumes of a pod and returns when they are ready.
	Prepare(ctx context.Context, pod *corev1.Pod) error
	// Container adds the mounts and devices of container c to l.
	Container(ctx context.Context, pod *corev1.Pod, c *corev1.Container, l *podspec.Launch) error
	// Update refreshes the volumes after the pod object has changed.
	Update(pod *corev1.Pod)
	// Release tears down all volumes of the pod.
	Release(ctx context.Context, uid string) error
}

// Time limits of one call of Prepare and of Release. A call that exceeds its limit is repeated by a later sync.
const (
	prepareTimeout = 2*time.Minute + 10*time.Second // longer than the 2 m 3 s of volume.Options.WaitTimeout, whose error is more precise
	releaseTimeout = 2 * time.Minute
)

// Volumes prepares, refreshes and releases the volumes of one pod through [PodVolumes]. Without PodVolumes it does nothing.
type Volumes struct {
	node      *Node
	reporter  *Reporter
	waiting   *WaitingReasons
	updated   *corev1.Pod // pod of the last PodVolumes.Update
	relabeled relabeledVolumes
}

// prepareVolumes waits until the volumes of pod are ready. An error becomes the waiting reason. Source: SyncPod in
// pkg/kubelet/kubelet.go.
func (v *Volumes) prepareVolumes(ctx context.Context, pod *corev1.Pod, actions *plan.Actions) error {
	if v.node.Volumes == nil {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, prepareTimeout)
	defer cancel()
	err := v.node.Volumes.Prepare(limited, pod)
	if err == nil {
		return nil
	}
	for _, s := range actions.Start {
		v.waiting.setError(s.Container.Name, podstatus.ReasonContainerCreating, err)
	}
	if ctx.Err() == nil {
		v.reporter.RecordWarning(podevents.ReasonFailedMountVolume, Subject{}, "Unable to attach or mount volumes: %v", err)
	}
	return fmt.Errorf("prepare volumes: %w", err)
}

// Update passes pod to [PodVolumes] if pod is not the pointer that the previous call has passed.
func (v *Volumes) Update(pod *corev1.Pod) {
	if v.node.Volumes != nil && pod != v.updated {
		v.node.Volumes.Update(pod)
		v.updated = pod
	}
}

// addToLaunch adds the volumes that the container mounts to launch, the parameters for creating the container.
func (v *Volumes) addToLaunch(ctx context.Context, pod *corev1.Pod, container *corev1.Container, sandboxID string, launch *podspec.Launch) error {
	if v.node.Volumes != nil {
		if err := v.node.Volumes.Container(ctx, pod, container, launch); err != nil {
			return err
		}
	}
	v.relabeled.skipRelabeled(sandboxID, pod, container, launch)
	return nil
}

// releaseVolumes tears down the volumes of the pod. No container of the pod may run.
func (v *Volumes) releaseVolumes(ctx context.Context) error {
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
