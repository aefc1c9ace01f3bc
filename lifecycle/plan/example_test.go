// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// Plan returns the next actions for a pod.
func ExamplePlan() {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "1"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "server", Image: "nginx"}}},
	}
	actions := plan.Plan(plan.State{Pod: pod, Observed: cri.Pod{}, Now: time.Now()})
	fmt.Println("create a sandbox:", actions.Sandbox != nil)
	for _, s := range actions.Start {
		fmt.Println("start", s.Container.Name, "attempt", s.Attempt)
	}
	// Output:
	// create a sandbox: true
	// start server attempt 0
}

// A simulation without a runtime changes the observed containers itself. It calls Decide for the next actions and the status of
// the pod, and sets its clock to the time of the next decision.
func ExampleDecide() {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "1"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "server", Image: "nginx"}}},
	}
	podapi.Default(pod)
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	state := plan.State{Pod: pod, Now: begin, Observed: cri.Pod{
		Sandboxes: []cri.Sandbox{{ID: "s", State: cri.SandboxReady, CreatedAt: begin}},
	}}
	for state.Now.Sub(begin) < time.Minute {
		actions, status := plan.Decide(state)
		fmt.Println(state.Now.Sub(begin), status.Phase, status.ContainerStatuses[0].RestartCount)
		state.Previous = &status
		if len(actions.Start) == 0 {
			state.Now = actions.WakeAt
		}
		for _, s := range actions.Start { // each container fails after one second
			started := state.Now
			state.Now = started.Add(time.Second)
			state.Observed.Containers = []cri.Container{{
				ID: fmt.Sprint("server-", s.Attempt), SandboxID: "s", Name: s.Container.Name, Attempt: s.Attempt,
				State: cri.ContainerExited, ExitCode: 1, CreatedAt: started, StartedAt: started, FinishedAt: state.Now,
				Annotations: s.Annotations(),
			}}
		}
	}
	// Output:
	// 0s Pending 0
	// 1s Running 0
	// 2s Running 1
	// 12s Running 1
	// 13s Running 2
	// 33s Running 2
	// 34s Running 3
}

// A program with its own executor stops the containers of a deleted pod, then its sandbox, and removes both. It calls Teardown
// once per observation.
func ExampleTeardown() {
	state := plan.State{Now: time.Now(), Deleted: true, StoppedSandboxes: map[string]bool{}, Observed: cri.Pod{
		Sandboxes:  []cri.Sandbox{{ID: "s", State: cri.SandboxReady}},
		Containers: []cri.Container{{ID: "c", SandboxID: "s", Name: "server", State: cri.ContainerRunning}},
	}}
	for {
		actions := plan.Teardown(state, 30*time.Second)
		if actions.IsIdle() {
			fmt.Println("nothing remains")
			return
		}
		for _, kill := range actions.Kill {
			fmt.Println("stop container", kill.ID, "within", kill.Grace)
			state.Observed.Containers[0].State = cri.ContainerExited
		}
		for _, id := range actions.StopSandboxes {
			fmt.Println("stop sandbox", id)
			state.Observed.Sandboxes[0].State, state.StoppedSandboxes[id] = cri.SandboxNotReady, true
		}
		for _, id := range actions.RemoveSandboxes { // with its containers
			fmt.Println("remove sandbox", id)
			state.Observed = cri.Pod{}
		}
	}
	// Output:
	// stop container c within 30s
	// stop sandbox s
	// remove sandbox s
	// nothing remains
}

// A container whose image was changed in the pod is replaced. Until its successor runs, an executor does not report its exit as a
// crash.
func ExampleActions_ReplacedContainers() {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "1"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "server", Image: "nginx:1"}}},
	}
	podapi.Default(pod)
	c := &pod.Spec.Containers[0]
	now := time.Now()
	observed := cri.Pod{
		Sandboxes: []cri.Sandbox{{ID: "s", State: cri.SandboxReady, CreatedAt: now}},
		Containers: []cri.Container{{
			ID: "c", SandboxID: "s", Name: "server", State: cri.ContainerRunning, CreatedAt: now, StartedAt: now,
			Annotations: map[string]string{podspec.AnnotationHash: podspec.Hash(c)},
		}},
	}
	c.Image = "nginx:2"
	actions := plan.Plan(plan.State{Pod: pod, Observed: observed, Now: now})
	for _, replaced := range actions.ReplacedContainers(observed) {
		fmt.Println("replace", replaced.ID)
	}
	// Output: replace c
}

// A program with its own executor reports why a container does not run, and stores its back-off in an annotation of the next
// instance.
func ExampleStatus() {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "1"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "server", Image: "nginx"}}},
	}
	podapi.Default(pod)
	started := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	state := plan.State{Pod: pod, Now: started.Add(time.Minute), Observed: cri.Pod{
		Sandboxes: []cri.Sandbox{{ID: "s", State: cri.SandboxReady, CreatedAt: started}},
		Containers: []cri.Container{{
			ID: "c", SandboxID: "s", Name: "server", State: cri.ContainerExited, ExitCode: 1,
			CreatedAt: started, StartedAt: started, FinishedAt: started.Add(time.Second),
		}},
	}}
	actions := plan.Plan(state)
	for _, s := range actions.Start {
		fmt.Println("attempt", s.Attempt, "has a back-off:", s.Annotations()[plan.AnnotationCrashLoop] != "")
	}
	failed := map[string]podstatus.Waiting{"server": {Reason: podstatus.ReasonRunError, Message: "no such file"}} // error of the start of this attempt
	status := plan.Status(state, actions.WaitingReasons(failed), false)
	fmt.Println(status.Phase, status.ContainerStatuses[0].State.Waiting.Reason)
	// Output:
	// attempt 1 has a back-off: true
	// Running RunContainerError
}
