// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package podtest builds pods for tests of package lifecycle and its internal packages: plain ones, and random ones with all
// fields that a plan depends on. It runs no pods.
package podtest

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/lifecycle/podapi"
)

// Pod returns a pod with default fields and one container for each name in containers. Without names, it has one container
// called main.
func Pod(name string, containers ...string) *corev1.Pod {
	grace := int64(5)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-" + name)},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyAlways, TerminationGracePeriodSeconds: &grace,
		},
	}
	if len(containers) == 0 {
		containers = []string{"main"}
	}
	for _, c := range containers {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: c, Image: "busybox"})
	}
	podapi.Default(pod)
	return pod
}

// Init returns an init container with this name.
func Init(name string) corev1.Container {
	return corev1.Container{Name: name, Image: "busybox"}
}

// Sidecar returns an init container with this name and restart policy Always.
func Sidecar(name string) corev1.Container {
	always := corev1.ContainerRestartPolicyAlways
	return corev1.Container{Name: name, Image: "busybox", RestartPolicy: &always}
}

// Exec returns a lifecycle handler that runs a command. words are the command and its arguments.
func Exec(words ...string) *corev1.LifecycleHandler {
	return &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: words}}
}

// Probe returns an exec probe that runs the command word. period is in seconds.
func Probe(word string, period int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{word}}},
		PeriodSeconds: period, FailureThreshold: 2, TimeoutSeconds: 1, SuccessThreshold: 1,
	}
}

// Describe summarizes a pod status: the phase, and the state and restart count of each container.
func Describe(status corev1.PodStatus) string {
	words := []string{string(status.Phase)}
	if status.Reason != "" {
		words = append(words, status.Reason)
	}
	for _, c := range slices.Concat(status.InitContainerStatuses, status.ContainerStatuses, status.EphemeralContainerStatuses) {
		state := ""
		switch {
		case c.State.Running != nil:
			if state = "running"; c.Ready {
				state = "ready"
			}
		case c.State.Waiting != nil:
			state = c.State.Waiting.Reason
		case c.State.Terminated != nil:
			state = fmt.Sprint("exited ", c.State.Terminated.ExitCode)
		}
		if c.RestartCount > 0 {
			state += fmt.Sprint(" x", c.RestartCount)
		}
		words = append(words, c.Name+": "+state)
	}
	return strings.Join(words, ", ")
}
