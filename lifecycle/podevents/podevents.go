// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package podevents turns what the hooks of images and probe report into events of pods, with the reasons and in the words of the kubelet. It
// sends no event: Record does.
//
//	record := func(pod cri.PodIdentity, e lifecycle.Event) { recorder.PodEvent(pod, e) }
//	puller, err := images.New(client, client, images.Options{Hooks: podevents.Images(record)})
//	set := probe.NewSet(probe.Options{Hooks: podevents.Probes(reconciler, record)})
//
// The hooks may be called from any goroutine, and call Record from there. Sources: pkg/kubelet/images/image_manager.go and
// pkg/kubelet/prober/prober.go.
//
// Test kit: none is needed; the hooks can be called by hand.
package podevents

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/images"
	"github.com/seed81659283/nodeagent/internal/required"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/probe"
)

// Record gets an event of a pod. It must not block.
type Record func(pod cri.PodIdentity, event lifecycle.Event)

// Pods returns pods by UID. *lifecycle.Reconciler is one.
type Pods interface {
	Pod(uid string) (state lifecycle.PodState, ok bool)
}

// hint names a value for a Record.
const hint = "a func that calls Recorder.PodEvent"

// Images returns hooks that record pulls, and images that cannot be used. It panics if record is nil.
func Images(record Record) images.Hooks {
	required.MustArgs("podevents.Images", required.Arg{Name: "record", Value: record, Hint: hint})
	tell := func(r images.Request, kind, reason, format string, args ...any) {
		record(cri.PodIdentity{Namespace: r.Pod.Namespace, Name: r.Pod.Name, UID: r.Pod.UID}, lifecycle.Event{
			Type: kind, Reason: reason, Message: fmt.Sprintf(format, args...), Container: r.Container,
		})
	}
	return images.Hooks{
		Present: func(r images.Request, _ cri.Image) {
			tell(r, corev1.EventTypeNormal, "Pulled", "Container image %q already present on machine and can be accessed by the pod", r.Image)
		},
		Pulling: func(r images.Request) { tell(r, corev1.EventTypeNormal, "Pulling", "Pulling image %q", r.Image) },
		Pulled: func(r images.Request, p images.Pull) {
			tell(r, corev1.EventTypeNormal, "Pulled", "Successfully pulled image %q in %v (%v including waiting). Image size: %d bytes.",
				r.Image, p.Took.Truncate(time.Millisecond), p.Total.Truncate(time.Millisecond), p.Image.Size)
		},
		Failed: func(r images.Request, err *images.Error) {
			switch err.Reason {
			case images.ReasonImagePullBackOff:
				tell(r, corev1.EventTypeNormal, "BackOff", "Back-off pulling image %q", r.Image)
			case images.ReasonErrImageNeverPull:
				tell(r, corev1.EventTypeWarning, err.Reason, "%v", err.Err)
			case images.ReasonImageInspectError:
				tell(r, corev1.EventTypeWarning, "InspectFailed", "%v", err.Err)
			case images.ReasonInvalidImageName:
				tell(r, corev1.EventTypeWarning, "InspectFailed", "Failed to apply default image tag %q: %v", r.Image, err.Err)
			default:
				tell(r, corev1.EventTypeWarning, "Failed", "Failed to pull image %q: %v", r.Image, err.Err)
			}
		},
	}
}

// Probes returns hooks that record probes that fail or warn. It panics if an argument is nil.
func Probes(pods Pods, record Record) probe.Hooks {
	required.MustArgs("podevents.Probes", required.Arg{Name: "pods", Value: pods, Hint: "a *lifecycle.Reconciler"},
		required.Arg{Name: "record", Value: record, Hint: hint})
	return probe.Hooks{Probed: func(k probe.Key, r probe.Result, err error, _ time.Duration) {
		reason, message := "Unhealthy", ""
		switch {
		case err != nil:
			message = fmt.Sprintf("%s probe errored and resulted in %s state: %v", k.Kind, r.Outcome, err)
		case r.Outcome == probe.Failure:
			message = fmt.Sprintf("%s probe failed: %s", k.Kind, r.Output)
		case r.Outcome == probe.Warning:
			reason, message = "ProbeWarning", fmt.Sprintf("%s probe warning: %s", k.Kind, r.Output)
		default:
			return
		}
		if state, ok := pods.Pod(k.PodUID); ok {
			e := lifecycle.Event{Type: corev1.EventTypeWarning, Reason: reason, Message: message, Container: k.Container}
			e.Attempt = restartCount(state.Status, k.Container)
			record(state.Pod, e)
		}
	}}
}

// restartCount returns how often a container was restarted, by the last status of its pod.
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
