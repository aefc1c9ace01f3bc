// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podevents

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/images"
	"github.com/seed81659283/nodeagent/internal/required"
	"github.com/seed81659283/nodeagent/probe"
)

// Record is a function that receives an event of a pod. It must not block.
type Record func(pod cri.PodIdentity, event Event)

// Pods finds the pods of a node by UID. *lifecycle.Reconciler and *lifecycle.Handle implement it.
type Pods interface {
	// PodStatus returns the identity and the last published status of the pod with the given UID. status is nil before the first
	// publication, and the caller must not change it. ok is false if there is no such pod.
	PodStatus(uid string) (pod cri.PodIdentity, status *corev1.PodStatus, ok bool)
}

// recordHint describes a valid Record. It is part of the panic message for a nil Record.
const recordHint = "a func that calls Recorder.PodEvent"

// Images returns hooks for package images. They pass an event to record for each image pull, and for each image that is
// present already or cannot be used. Images panics if record is nil.
func Images(record Record) images.Hooks {
	required.MustArgs("podevents.Images", required.Arg{Name: "record", Value: record, Hint: recordHint})
	tell := func(r images.Request, kind, reason, format string, args ...any) {
		record(cri.PodIdentity{Namespace: r.Pod.Namespace, Name: r.Pod.Name, UID: r.Pod.UID}, Event{
			Type: kind, Reason: reason, Message: fmt.Sprintf(format, args...), Container: r.Container,
		})
	}
	return images.Hooks{
		Present: func(r images.Request, _ cri.Image) {
			tell(r, corev1.EventTypeNormal, ReasonPulledImage, "Container image %q already present on machine and can be accessed by the pod", r.Image)
		},
		Pulling: func(r images.Request) {
			tell(r, corev1.EventTypeNormal, ReasonPullingImage, "Pulling image %q", r.Image)
		},
		Pulled: func(r images.Request, p images.Pull) {
			tell(r, corev1.EventTypeNormal, ReasonPulledImage, "Successfully pulled image %q in %v (%v including waiting). Image size: %d bytes.",
				r.Image, p.Took.Truncate(time.Millisecond), p.Total.Truncate(time.Millisecond), p.Image.Size)
		},
		Failed: func(r images.Request, err *images.Error) {
			switch err.Reason {
			case images.ReasonImagePullBackOff:
				tell(r, corev1.EventTypeNormal, ReasonBackOffStartContainer, "Back-off pulling image %q", r.Image)
			case images.ReasonErrImageNeverPull:
				tell(r, corev1.EventTypeWarning, err.Reason, "%v", err.Err)
			case images.ReasonImageInspectError:
				tell(r, corev1.EventTypeWarning, ReasonFailedToInspectImage, "%v", err.Err)
			case images.ReasonInvalidImageName:
				tell(r, corev1.EventTypeWarning, ReasonFailedToInspectImage, "Failed to apply default image tag %q: %v", r.Image, err.Err)
			default:
				tell(r, corev1.EventTypeWarning, ReasonFailedToStartContainer, "Failed to pull image %q: %v", r.Image, err.Err)
			}
		},
	}
}

// Probes returns hooks for package probe, which pass an event to record for each failed probe and each probe warning. pods
// provides the identity and the status of the probed pod. Probes panics if an argument is nil.
func Probes(pods Pods, record Record) probe.Hooks {
	required.MustArgs("podevents.Probes", required.Arg{Name: "pods", Value: pods, Hint: "a *lifecycle.Reconciler"},
		required.Arg{Name: "record", Value: record, Hint: recordHint})
	return probe.Hooks{ProbeFinished: func(k probe.Key, r probe.Result, err error, _ time.Duration) {
		reason, message := ReasonUnhealthyContainer, ""
		switch {
		case err != nil:
			message = fmt.Sprintf("%s probe errored and resulted in %s state: %v", k.Kind, r.Outcome, err)
		case r.Outcome == probe.Failure:
			message = fmt.Sprintf("%s probe failed: %s", k.Kind, r.Output)
		case r.Outcome == probe.Warning:
			reason, message = ReasonProbeWarning, fmt.Sprintf("%s probe warning: %s", k.Kind, r.Output)
		default:
			return
		}
		if pod, status, ok := pods.PodStatus(k.PodUID); ok {
			record(pod, Event{
				Type: corev1.EventTypeWarning, Reason: reason, Message: message,
				Container: k.Container, Attempt: restartCount(status, k.Container),
			})
		}
	}}
}

// restartCount returns the restart count of the named container in status. It returns zero if status is nil or does not have the
// container.
func restartCount(status *corev1.PodStatus, container string) uint32 {
	if status == nil {
		return 0
	}
	for _, c := range slices.Concat(status.InitContainerStatuses, status.ContainerStatuses) {
		if c.Name == container {
			return uint32(c.RestartCount)
		}
	}
	return 0
}
