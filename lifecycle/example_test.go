// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"fmt"
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
	runtime := critest.New(critest.Options{})
	var reconciler *lifecycle.Reconciler
	generator := pleg.New(runtime, pleg.Options{Sink: func(events []pleg.Event) {
		for _, e := range events {
			reconciler.Changed(e.PodUID)
		}
	}})
	running := make(chan struct{})
	reconciler = lifecycle.New(runtime, generator, lifecycle.Options{
		Hooks: lifecycle.Hooks{Status: func(pod *corev1.Pod, st *corev1.PodStatus) {
			fmt.Println(pod.Name, st.Phase)
			if st.Phase == corev1.PodRunning {
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
