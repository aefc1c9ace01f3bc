// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"fmt"
	"os"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
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
	podapi.Default(pod)
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
