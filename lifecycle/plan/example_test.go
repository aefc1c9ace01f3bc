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
)

// Plan says what a pod needs next.
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

// A simulation needs neither a loop nor a runtime: it makes up what a node holds, asks for what comes next and for the
// status of the pod, and puts the clock to when that is.
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
			state.Now = actions.Wake
		}
		for _, s := range actions.Start { // it fails after one second
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
