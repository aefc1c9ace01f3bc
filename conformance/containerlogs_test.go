// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet"

	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/internal/loginstance"
)

func TestLogContainer(t *testing.T) { run(t, logContainer) }

// loggedContainer is a request for the log of a container.
type loggedContainer struct {
	Status   corev1.PodStatus
	Name     string
	Previous bool
}

type containerOrError struct{ ID, Err string }

func orError(id string, err error) containerOrError {
	if err != nil {
		return containerOrError{Err: err.Error()}
	}
	return containerOrError{ID: id}
}

var logContainer = conformance.Comparison[loggedContainer, containerOrError]{
	Make: func(c *conformance.Choices) (in loggedContainer) {
		id := func() string { return conformance.Pick(c, "x://a", "x://b", "") }
		state := func() (s corev1.ContainerState) {
			if c.OneIn(3) {
				s.Running = &corev1.ContainerStateRunning{}
			}
			if c.OneIn(3) {
				s.Terminated = &corev1.ContainerStateTerminated{ContainerID: id()}
			}
			if c.OneIn(3) {
				s.Waiting = &corev1.ContainerStateWaiting{Reason: conformance.Pick(c, "", "ErrImagePull", "ImagePullBackOff", "CrashLoopBackOff")}
			}
			return s
		}
		for _, list := range []*[]corev1.ContainerStatus{
			&in.Status.ContainerStatuses, &in.Status.InitContainerStatuses, &in.Status.EphemeralContainerStatuses,
		} {
			for range c.Int(2) + c.Int(2) {
				status := corev1.ContainerStatus{Name: conformance.Pick(c, "c", "d"), State: state(), LastTerminationState: state()}
				if status.State.Running != nil {
					status.ContainerID = "x://running"
				}
				*list = append(*list, status)
			}
		}
		in.Name, in.Previous = conformance.Pick(c, "c", "d", "e"), c.OneIn(3)
		return in
	},
	Kubelet: func(in loggedContainer) containerOrError {
		return orError(kubelet.ConformanceLogContainer(context.Background(), &in.Status, "p", in.Name, in.Previous))
	},
	Ours: func(in loggedContainer) containerOrError {
		return orError(loginstance.Find(&in.Status, "p", in.Name, in.Previous))
	},
}
