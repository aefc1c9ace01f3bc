// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podview"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// PodDevices reserves the devices of a pod and adds them to its containers. lifecycle.Devices documents the contract.
type PodDevices interface {
	// Reserve reserves all devices of a pod, or none.
	Reserve(ctx context.Context, pod *corev1.Pod) error
	// Container adds the devices of container c to l.
	Container(ctx context.Context, pod *corev1.Pod, c *corev1.Container, l *podspec.Launch) error
	// Release releases all devices of the pod.
	Release(ctx context.Context, uid string) error
}

// deviceTimeout limits one call of [PodDevices]. A call that exceeds it is repeated by a later sync.
const deviceTimeout = 2 * time.Minute

// RejectedError is the error of [Executor.Execute] for a pod that [PodDevices] has rejected. No container of the pod runs.
type RejectedError struct{ Rejection *podstatus.Rejection }

// Error returns "reserve devices: " and the reason and message of the rejection.
func (e *RejectedError) Error() string { return "reserve devices: " + e.Rejection.Error() }

// Devices reserves and releases the devices of one pod through [PodDevices]. Without PodDevices it does nothing.
type Devices struct {
	node     *Node
	reporter *Reporter
	waiting  *WaitingReasons

	reserved bool // the last Reserve succeeded, and no Release followed
}

// IsReserveDue reports whether the devices of a pod must be reserved even if no container of it is started: a previous agent
// process may have started its containers.
func (d *Devices) IsReserveDue(actions *plan.Actions) bool {
	return d.node.Devices != nil && !d.reserved && !actions.PodTerminal
}

// reserve reserves the devices of pod. An error becomes the waiting reason of the containers to start. If PodDevices rejects the
// pod and no container of it runs, the error is a [*RejectedError]. Source: Allocate in pkg/kubelet/cm/devicemanager/manager.go.
func (d *Devices) reserve(ctx context.Context, pod *corev1.Pod, observed cri.Pod, actions *plan.Actions) error {
	if d.node.Devices == nil {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err // the pod was deleted during earlier actions
	}
	limited, cancel := context.WithTimeout(ctx, deviceTimeout)
	defer cancel()
	err := d.node.Devices.Reserve(limited, pod)
	if d.reserved = err == nil; d.reserved {
		return nil
	}
	if rejection, ok := errors.AsType[*podstatus.Rejection](err); ok && !mayRun(observed) {
		return &RejectedError{Rejection: rejection}
	}
	for _, s := range actions.Start {
		d.waiting.setError(s.Container.Name, podstatus.ReasonContainerCreating, err)
	}
	if ctx.Err() == nil {
		d.reporter.RecordWarning(podevents.ReasonFailedReserveDevices, Subject{}, "Unable to reserve devices: %v", err)
	}
	return fmt.Errorf("reserve devices: %w", err)
}

// mayRun reports whether a container of the pod runs, or is in state unknown.
func mayRun(pod cri.Pod) bool {
	return slices.ContainsFunc(pod.Containers, func(c cri.Container) bool {
		return c.State == cri.ContainerRunning || c.State == cri.ContainerUnknown
	})
}

// addToLaunch adds the devices of the container to launch, the parameters for creating the container. The annotations in which
// the agent stores the state of containers cannot be set by a device plugin.
func (d *Devices) addToLaunch(ctx context.Context, pod *corev1.Pod, container *corev1.Container, launch *podspec.Launch) error {
	if d.node.Devices == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, deviceTimeout)
	defer cancel()
	own := maps.Clone(launch.Annotations)
	if err := d.node.Devices.Container(ctx, pod, container, launch); err != nil {
		return err
	}
	if launch.Annotations == nil {
		launch.Annotations = map[string]string{}
	}
	delete(launch.Annotations, plan.AnnotationCrashLoop)
	delete(launch.Annotations, podview.AnnotationGeneration)
	maps.Copy(launch.Annotations, own)
	return nil
}

// startPreparer is lifecycle.StartPreparer.
type startPreparer interface {
	PrepareStart(ctx context.Context, pod *corev1.Pod, container *corev1.Container, id string) error
}

// prepareStart calls PrepareStart of PodDevices, if it has the method, for a created container with this ID.
func (d *Devices) prepareStart(ctx context.Context, pod *corev1.Pod, container *corev1.Container, id string) error {
	preparer, ok := d.node.Devices.(startPreparer)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, deviceTimeout)
	defer cancel()
	if err := preparer.PrepareStart(ctx, pod, container, id); err != nil {
		return fmt.Errorf("prepare the devices of a start: %w", err)
	}
	return nil
}

// release releases the devices of the pod. No container of the pod may run.
func (d *Devices) release(ctx context.Context) error {
	if d.node.Devices == nil {
		return nil
	}
	d.reserved = false
	ctx, cancel := context.WithTimeout(ctx, deviceTimeout)
	defer cancel()
	if err := d.node.Devices.Release(ctx, d.reporter.id.UID); err != nil {
		return fmt.Errorf("release devices: %w", err)
	}
	return nil
}
