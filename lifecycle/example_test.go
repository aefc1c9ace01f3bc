// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/pleg"
)

// A runtime, a generator that watches it, and a reconciler that acts on what it sees are an agent.
func ExampleReconciler() {
	logs, err := os.MkdirTemp("", "logs")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(logs)
	runtime := critest.New(critest.Options{})
	var reconciler *lifecycle.Reconciler
	generator := pleg.New(runtime, pleg.Options{Sink: func(events []pleg.Event) {
		for _, e := range events {
			reconciler.Changed(e.PodUID)
		}
	}})
	running := make(chan struct{})
	var phase corev1.PodPhase
	reconciler = lifecycle.New(runtime, generator, lifecycle.Options{
		Spec: podspec.Options{LogRoot: logs},
		Hooks: lifecycle.Hooks{Status: func(pod *corev1.Pod, st *corev1.PodStatus) {
			if st.Phase == phase {
				return // something else of it has changed, such as its address
			}
			phase = st.Phase
			fmt.Println(pod.Name, phase)
			if phase == corev1.PodRunning {
				close(running)
			}
		}},
	})
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = generator.Run(ctx) })
	wg.Go(func() { _ = reconciler.Run(ctx) })

	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "1"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "server", Image: "nginx"}}},
	}
	podspec.Default(pod)
	if err := reconciler.Set(lifecycle.PodSet{Source: "example", Pods: []*corev1.Pod{pod}}); err != nil {
		fmt.Println(err)
	}
	<-running
	stop()
	wg.Wait()
	// Output:
	// web Pending
	// web Running
}

// Plan needs no loop: it says what a pod needs next.
func ExamplePlan() {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "1"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "server", Image: "nginx"}}},
	}
	actions := lifecycle.Plan(lifecycle.State{Pod: pod, Observed: cri.Pod{}, Now: time.Now()})
	fmt.Println("create a sandbox:", actions.Sandbox != nil)
	for _, s := range actions.Start {
		fmt.Println("start", s.Container.Name, "attempt", s.Attempt)
	}
	// Output:
	// create a sandbox: true
	// start server attempt 0
}

// A simulation needs neither a loop nor a runtime: it makes up what a node holds, asks for the status of the pod and for
// what comes next, and puts the clock to when that is.
func ExampleStatus() {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "1"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "server", Image: "nginx"}}},
	}
	podspec.Default(pod)
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	observed := cri.Pod{Sandboxes: []cri.Sandbox{{ID: "s", State: cri.SandboxReady, CreatedAt: begin}}}
	in, held := lifecycle.StatusInput{}, map[string]lifecycle.Held{}
	for now := begin; now.Sub(begin) < time.Minute; {
		in.Now, in.Held = now, held
		status := lifecycle.Status(pod, observed, in)
		fmt.Println(now.Sub(begin), status.Phase, status.ContainerStatuses[0].RestartCount)
		in.Previous = &status

		final := status.Phase == corev1.PodSucceeded || status.Phase == corev1.PodFailed
		actions := lifecycle.Plan(lifecycle.State{Pod: pod, Observed: observed, Now: now, Final: final})
		clear(held)
		for _, w := range actions.Waiting {
			held[w.Name] = lifecycle.Held{Reason: lifecycle.ReasonCrashLoopBackOff, Message: w.Message}
			now = w.Until
		}
		for _, s := range actions.Start { // it fails after one second
			now = now.Add(time.Second)
			observed.Containers = []cri.Container{{
				ID: fmt.Sprint("server-", s.Attempt), SandboxID: "s", Name: s.Container.Name, Attempt: s.Attempt,
				State: cri.ContainerExited, ExitCode: 1, CreatedAt: now.Add(-time.Second), StartedAt: now.Add(-time.Second), FinishedAt: now,
				Annotations: map[string]string{lifecycle.AnnotationCrashLoop: s.CrashLoop},
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
