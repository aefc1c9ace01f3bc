// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podstatus_test

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// explain translates the reason of a container or a pod for the display of a machine.
func explain(reason string) string {
	switch reason {
	case podstatus.ReasonContainerCreating, podstatus.ReasonPodInitializing:
		return "starts"
	case podstatus.ReasonCrashLoopBackOff, podstatus.ReasonRestartingAllContainers:
		return "restarts"
	case podstatus.ReasonCreateConfigError, podstatus.ReasonCreateError, podstatus.ReasonRunError, podstatus.ReasonPostStartHookError:
		return "cannot start"
	case podstatus.ReasonStatusUnknown:
		return "was lost"
	case podstatus.ReasonDeadlineExceeded:
		return "took too long"
	case podstatus.ReasonUnexpectedAdmissionError:
		return "was rejected"
	}
	return reason
}

// newPod returns a pod with one container, which may run for an hour.
func newPod() *corev1.Pod {
	seconds := int64(3600)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "1"},
		Spec:       corev1.PodSpec{ActiveDeadlineSeconds: &seconds, Containers: []corev1.Container{{Name: "server", Image: "nginx"}}},
	}
	podapi.Default(pod)
	return pod
}

// The status of a pod whose container has crashed, from the state of the runtime.
func ExampleOf() {
	pod := newPod()
	created := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	observed := cri.Pod{
		Sandboxes: []cri.Sandbox{{ID: "s", State: cri.SandboxReady, CreatedAt: created}},
		Containers: []cri.Container{{
			ID: "c", SandboxID: "s", Name: "server", State: cri.ContainerExited, ExitCode: 2, Reason: "Error",
			CreatedAt: created, StartedAt: created, FinishedAt: created.Add(time.Second),
		}},
	}
	status := podstatus.Of(pod, observed, podstatus.Input{
		Now: created.Add(2 * time.Second), RuntimeName: "containerd",
		Waiting: map[string]podstatus.Waiting{"server": {Reason: podstatus.ReasonCrashLoopBackOff, Message: "back-off 10s"}},
	})
	server := podstatus.FindContainer(status.ContainerStatuses, "server")
	fmt.Println(status.Phase, server.Name, explain(server.State.Waiting.Reason))
	fmt.Println("exit code", server.LastTerminationState.Terminated.ExitCode)
	fmt.Println("may run until", podstatus.Deadline(pod, status.StartTime).UTC().Format(time.TimeOnly))
	// Output:
	// Running server restarts
	// exit code 2
	// may run until 04:04:05
}

// A terminal phase means that the resources of the pod are free. A loop that reports statuses defers it while a sandbox is ready.
func ExampleDeferTerminalPhase() {
	pod := newPod()
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	observed := cri.Pod{
		Sandboxes:  []cri.Sandbox{{ID: "s", State: cri.SandboxReady, CreatedAt: now}},
		Containers: []cri.Container{{ID: "c", SandboxID: "s", Name: "server", State: cri.ContainerExited, CreatedAt: now, StartedAt: now, FinishedAt: now}},
	}
	reported := corev1.PodRunning
	for _, state := range []cri.SandboxState{cri.SandboxReady, cri.SandboxNotReady} {
		observed.Sandboxes[0].State = state
		status := podstatus.DeferTerminalPhase(pod, observed, podstatus.Of(pod, observed, podstatus.Input{Now: now}), reported)
		fmt.Println(status.Phase)
	}
	// Output:
	// Running
	// Succeeded
}

// A controller that only has container statuses, as an API server shows them, computes the phase of their pod.
func ExamplePhase() {
	exited := corev1.ContainerStatus{Name: "server", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}}}
	pod := newPod()
	fmt.Println(podstatus.Phase(pod, []corev1.ContainerStatus{exited}, podstatus.PhaseInput{Initialized: true}))
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	fmt.Println(podstatus.Phase(pod, []corev1.ContainerStatus{exited}, podstatus.PhaseInput{Initialized: true}))
	// Output:
	// Running
	// Failed
}

// A rejection has the kubelet's message in the status of the pod, and in its event also an explanation.
func ExampleRejection_EventMessage() {
	rejection := &podstatus.Rejection{
		Reason: "TopologyAffinityError", Message: "Resources cannot be allocated with Topology locality",
		Explanation: "container main needs 2 CPUs: node 0: 1 of 4 free (1 reserved, 2 exclusive)",
	}
	fmt.Println(rejection.EventMessage())
	status := rejection.Status(&corev1.Pod{})
	fmt.Println(status.Message)
	// Output:
	// Resources cannot be allocated with Topology locality. container main needs 2 CPUs: node 0: 1 of 4 free (1 reserved, 2 exclusive)
	// Pod was rejected: Resources cannot be allocated with Topology locality
}
