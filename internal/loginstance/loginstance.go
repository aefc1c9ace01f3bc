// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package loginstance finds the container instance whose log a client requests by the name of the container. It reads no log, and
// is pure.
package loginstance

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// The waiting reasons with their own text in the error.
const (
	reasonErrImagePull     = "ErrImagePull"
	reasonImagePullBackOff = "ImagePullBackOff"
)

// Find returns the ID, such as containerd://0123, of the container instance whose log a kubelet returns: the running one, or
// else the one that terminated last. With previous, it is the instance before. The error states why there is none. Source:
// validateContainerLogStatus in pkg/kubelet/kubelet_pods.go.
func Find(status *corev1.PodStatus, pod, container string, previous bool) (id string, err error) {
	c := findStatus(status, container)
	if c == nil {
		return "", fmt.Errorf("container %q in pod %q is not available", container, pod)
	}
	last := ""
	if t := c.LastTerminationState.Terminated; t != nil {
		last = t.ContainerID
	}
	terminated := fmt.Errorf("container %q in pod %q is terminated", container, pod)
	switch {
	case previous:
		if last == "" {
			return "", fmt.Errorf("previous terminated container %q in pod %q not found", container, pod)
		}
		return last, nil
	case c.State.Running != nil:
		return c.ContainerID, nil
	case c.State.Terminated != nil:
		if c.State.Terminated.ContainerID != "" {
			return c.State.Terminated.ContainerID, nil
		}
		if last == "" {
			return "", terminated
		}
		return last, nil // the next instance did not start
	case c.LastTerminationState.Terminated != nil:
		if last == "" {
			return "", terminated
		}
		return last, nil
	}
	return "", fmt.Errorf("container %q in pod %q is waiting to start%s", container, pod, waitingText(c.State.Waiting))
}

// waitingText returns the end of the error text for a container without logs. It contains the reason in waiting, the
// waiting state of the container. waiting may be nil.
func waitingText(waiting *corev1.ContainerStateWaiting) string {
	switch {
	case waiting == nil:
		return " - no logs yet"
	case waiting.Reason == reasonErrImagePull:
		return ": image can't be pulled"
	case waiting.Reason == reasonImagePullBackOff:
		return ": trying and failing to pull image"
	}
	return ": " + waiting.Reason
}

// findStatus returns the status of the container called name, of any kind, or nil.
func findStatus(status *corev1.PodStatus, name string) *corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{status.ContainerStatuses, status.InitContainerStatuses, status.EphemeralContainerStatuses} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}
