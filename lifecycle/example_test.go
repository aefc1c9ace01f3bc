// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/source"
	"github.com/seed81659283/nodeagent/pleg"
)

// An agent consists of a runtime, a generator that watches the runtime, and a reconciler. Here the runtime is in memory, and
// source.Static converts a pod to the pod that its manifest would yield.
func ExampleReconciler() {
	runtime := critest.New(critest.Options{})
	generator := pleg.New(runtime, pleg.Options{})
	phases := make(chan corev1.PodPhase, 100)
	reconciler, err := lifecycle.New(runtime, generator, lifecycle.Options{
		Hooks: lifecycle.Hooks{StatusChanged: func(_ *corev1.Pod, st *corev1.PodStatus) { phases <- st.Phase }},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = generator.Run(ctx) })
	wg.Go(func() { _ = reconciler.Run(ctx) })

	pod, err := source.Static(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "server", Image: "nginx"}}},
	}, source.Origin{NodeName: "edge-1"})
	if err != nil {
		fmt.Println(err)
	}
	if err := reconciler.Set(lifecycle.PodSet{Source: "example", Pods: []*corev1.Pod{pod}}); err != nil {
		fmt.Println(err)
	}
	for phase := range phases {
		if phase == corev1.PodRunning {
			fmt.Println(pod.Name, phase)
			break
		}
	}
	stop()
	wg.Wait()
	// Output:
	// web-edge-1 Running
}

// A node in memory, for tests: containers behave like a script, here they fail twice. In a testing/synctest bubble an hour of
// such a node passes at once; see TestNodeInVirtualTime in this file.
func Example_nodeInMemory() {
	runtime := critest.New(critest.Options{Script: critest.FailFirst(2, critest.ExitAfter(time.Millisecond, 1))})
	generator := pleg.New(runtime, pleg.Options{})
	statuses := make(chan corev1.ContainerStatus, 100)
	reconciler, err := lifecycle.New(runtime, generator, lifecycle.Options{
		Pacing: lifecycle.Pacing{MaxRestartPeriod: 10 * time.Millisecond}, // the default back-off starts with 10 s
		Hooks:  lifecycle.Hooks{StatusChanged: func(_ *corev1.Pod, st *corev1.PodStatus) { statuses <- st.ContainerStatuses[0] }},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = generator.Run(ctx) })
	wg.Go(func() { _ = reconciler.Run(ctx) })
	pod, _ := source.Static(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "server", Image: "nginx"}}},
	}, source.Origin{})
	_ = reconciler.Set(lifecycle.PodSet{Source: "test", Pods: []*corev1.Pod{pod}})
	for st := range statuses {
		if st.RestartCount == 2 && st.State.Running != nil {
			fmt.Println(st.Name, "runs after", st.RestartCount, "restarts")
			break
		}
	}
	stop()
	wg.Wait()
	fmt.Println(len(runtime.Calls("StartContainer")), "starts")
	// Output:
	// server runs after 2 restarts
	// 3 starts
}

// TestNodeInVirtualTime runs the node of Example_nodeInMemory with the default back-off, which takes no real time.
func TestNodeInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runtime := critest.New(critest.Options{Script: critest.FailFirst(2, critest.ExitAfter(time.Second, 1))})
		generator := pleg.New(runtime, pleg.Options{})
		var last corev1.ContainerStatus
		reconciler, err := lifecycle.New(runtime, generator, lifecycle.Options{
			Hooks: lifecycle.Hooks{StatusChanged: func(_ *corev1.Pod, st *corev1.PodStatus) { last = st.ContainerStatuses[0] }},
		})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = generator.Run(ctx) })
		wg.Go(func() { _ = reconciler.Run(ctx) })
		begun := time.Now()
		pod, err := source.Static(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "server", Image: "nginx"}}},
		}, source.Origin{})
		require.NoError(t, err)
		require.NoError(t, reconciler.Set(lifecycle.PodSet{Source: "test", Pods: []*corev1.Pod{pod}}))
		time.Sleep(time.Hour)
		synctest.Wait()
		require.EqualValues(t, 2, last.RestartCount)
		require.WithinDuration(t, begun.Add(12*time.Second), last.State.Running.StartedAt.Time, time.Second, "1 s each, and 10 s of back-off")
		stop()
		wg.Wait()
	})
}

// Two runtimes in one agent, such as containerd and plain processes: each has a generator and a reconciler, and the program
// chooses the reconciler of each pod. Each reconciler also needs its own Dirs.Pods or Owner.
func Example_twoRuntimes() {
	runs := make(chan string, 100)
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for name, image := range map[string]string{"containers": "nginx", "processes": "sensor"} {
		runtime := critest.New(critest.Options{}) // in a program: remote.Dial(endpoint, …), and process.Open(directory, …)
		generator := pleg.New(runtime, pleg.Options{})
		reconciler, err := lifecycle.New(runtime, generator, lifecycle.Options{
			Owner: name,
			Hooks: lifecycle.Hooks{StatusChanged: func(pod *corev1.Pod, st *corev1.PodStatus) {
				if st.Phase == corev1.PodRunning {
					runs <- fmt.Sprint(pod.Name, " runs in ", name)
				}
			}},
		})
		if err != nil {
			panic(err)
		}
		wg.Go(func() { _ = generator.Run(ctx) })
		wg.Go(func() { _ = reconciler.Run(ctx) })
		pod, _ := source.Static(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "pod-of-" + name, Namespace: "default"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: image}}},
		}, source.Origin{})
		_ = reconciler.Set(lifecycle.PodSet{Source: "example", Pods: []*corev1.Pod{pod}})
	}
	seen := map[string]bool{}
	for len(seen) < 2 {
		if line := <-runs; !seen[line] {
			seen[line] = true
			fmt.Println(line)
		}
	}
	stop()
	wg.Wait()
	// Unordered output:
	// pod-of-containers runs in containers
	// pod-of-processes runs in processes
}
