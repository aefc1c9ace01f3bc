// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/seed81659283/nodeagent/agent"
	"github.com/seed81659283/nodeagent/agent/kubeletconfig"
	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
	"github.com/seed81659283/nodeagent/lifecycle/source"
	"github.com/seed81659283/nodeagent/stats"
)

var quiet = slog.New(slog.DiscardHandler)

// newPod returns a pod of one container that runs a shell command.
func newPod(name, script string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "main", Image: "busybox", Command: []string{"/bin/sh", "-c", script}}},
		},
	}
}

// An edge controller runs a pod that it has built in code: without an API server, a container runtime and manifests.
func ExampleNew_edgeController() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	root, _ := os.MkdirTemp("", "edge")
	defer os.RemoveAll(root)

	pods := make(chan []*corev1.Pod, 1)
	pods <- []*corev1.Pod{newPod("sensor", "exit 3")}
	options := agent.Options{Logger: quiet, Sources: []source.Source{source.Pods("controller", pods)}}
	options.Hooks.Lifecycle.StatusChanged = func(pod *corev1.Pod, status *corev1.PodStatus) {
		if status.Phase == corev1.PodFailed {
			fmt.Println(pod.Name, "exited with", status.ContainerStatuses[0].State.Terminated.ExitCode)
			cancel()
		}
	}
	var config agent.Config
	config.Node.RootDir = root
	a, err := agent.New(ctx, config, options)
	if err == nil {
		err = a.Run(ctx)
	}
	fmt.Println(err)
	// Output:
	// sensor exited with 3
	// <nil>
}

// memory is a custom container runtime.
type memory struct{ *critest.Runtime }

func (m memory) StartContainer(ctx context.Context, id string) error {
	fmt.Println("start a container")
	return m.Runtime.StartContainer(ctx, id)
}

// An agent runs pods in a custom runtime.
func ExampleOptions_runtime() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	pods := make(chan []*corev1.Pod, 1)
	pods <- []*corev1.Pod{newPod("web", "serve")}
	a, err := agent.New(ctx, agent.Config{}, agent.Options{
		Logger: quiet, Ephemeral: true, Runtime: memory{critest.New(critest.Options{})}, Sources: []source.Source{source.Pods("code", pods)},
		Hooks: agent.Hooks{Lifecycle: lifecycle.Hooks{StatusChanged: func(_ *corev1.Pod, status *corev1.PodStatus) {
			if status.Phase == corev1.PodRunning {
				fmt.Println("the pod runs")
				cancel()
			}
		}}},
	})
	if err == nil {
		err = a.Run(ctx)
	}
	fmt.Println(err)
	// Output:
	// start a container
	// the pod runs
	// <nil>
}

// timetable is a source of pods: one pod in each hour of the day.
type timetable struct{ now func() time.Time }

func (timetable) Name() string { return "timetable" }

func (s timetable) Run(ctx context.Context, set func(lifecycle.PodSet)) error {
	for ctx.Err() == nil {
		pod := newPod(fmt.Sprint("hour-", s.now().Hour()), "work")
		podapi.Default(pod)
		set(lifecycle.PodSet{Source: s.Name(), Pods: []*corev1.Pod{pod}})
		select {
		case <-ctx.Done():
		case <-time.After(time.Hour):
		}
	}
	return nil
}

// An agent gets its pods from a custom source.
func ExampleOptions_sources() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	morning := func() time.Time { return time.Date(2026, 1, 1, 8, 0, 0, 0, time.UTC) }
	options := agent.Options{
		Logger: quiet, Ephemeral: true, Runtime: critest.New(critest.Options{}), Sources: []source.Source{timetable{morning}},
	}
	options.Hooks.Event = func(pod cri.PodIdentity, event podevents.Event, _ map[string]string) {
		if event.Reason == "Started" {
			fmt.Println(pod.Name, event.Reason)
			cancel()
		}
	}
	a, err := agent.New(ctx, agent.Config{}, options)
	if err == nil {
		err = a.Run(ctx)
	}
	fmt.Println(err)
	// Output:
	// hour-8 Started
	// <nil>
}

// model simulates a node of three pods, whose memory is used up once all of them run.
type model struct{ running atomic.Int32 }

func (m *model) Signals(context.Context) (stats.Signals, error) {
	available := int64(512 << 20)
	if m.running.Load() == 3 {
		available = 1 << 20
	}
	return stats.Signals{Time: time.Now(), Memory: &stats.Amount{Available: available, Capacity: 1 << 30}}, nil
}

func (m *model) Summary(context.Context) (*statsapi.Summary, error) {
	s := &statsapi.Summary{}
	for i, name := range []string{"c", "b", "a"} {
		used := uint64(i+1) << 20
		s.Pods = append(s.Pods, statsapi.PodStats{
			PodRef: statsapi.PodReference{Namespace: "default", Name: name, UID: name}, Memory: &statsapi.MemoryStats{WorkingSetBytes: &used},
		})
	}
	return s, nil
}

// An agent evicts the pod whose name comes last in the alphabet, not the one that exceeds its request most.
func ExampleOptions_ranker() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	lastName := eviction.OrderedBy(func(a, b *eviction.Candidate) int { return cmp.Compare(b.Name, a.Name) })
	pods := make(chan []*corev1.Pod, 1)
	pods <- []*corev1.Pod{newPod("a", "work"), newPod("b", "work"), newPod("c", "work")}
	measurer := &model{}
	options := agent.Options{
		Logger: quiet, Ephemeral: true, Runtime: critest.New(critest.Options{}), Sources: []source.Source{source.Pods("code", pods)},
		Measurer: measurer, Ranker: func(eviction.Layout) eviction.EvictionRanker { return lastName },
	}
	options.Hooks.Event = func(pod cri.PodIdentity, event podevents.Event, _ map[string]string) {
		switch event.Reason {
		case "Started":
			measurer.running.Add(1)
		case "Evicted":
			fmt.Println("evicted", pod.Name)
			cancel()
		}
	}
	config := agent.Config{}
	config.Kubelet.EvictionHard = map[string]string{"memory.available": "100Mi"}
	a, err := agent.New(ctx, config, options)
	if err == nil {
		err = a.Run(ctx)
	}
	fmt.Println(err, a.Evictor().Status().Conditions)
	// Output:
	// evicted c
	// <nil> [MemoryPressure]
}

// A program serves the API of the node itself, here without a connection.
func ExampleAgent_Handler() {
	root, _ := os.MkdirTemp("", "node")
	defer os.RemoveAll(root)
	var config agent.Config
	config.Node.RootDir = root
	config.Kubelet.EnableServer, config.Kubelet.Authentication.Webhook.Enabled = new(true), new(false)
	config.Kubelet.Authentication.Anonymous.Enabled, config.Kubelet.Authorization.Mode = new(true), kubeletconfig.AlwaysAllow
	a, err := agent.New(context.Background(), config, agent.Options{
		Logger: quiet, Runtime: critest.New(critest.Options{}), Sources: []source.Source{source.Pods("code", nil)},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	w := httptest.NewRecorder()
	a.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/pods", nil))
	fmt.Print(w.Code, " ", w.Body)
	// Output: 200 {"kind":"PodList","apiVersion":"v1","metadata":{},"items":null}
}

// Several agents run in one process, each with its own runtime and directory.
func ExampleNew_severalAgents() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var running, agents sync.WaitGroup
	for _, name := range []string{"n1", "n2", "n3"} {
		pods := make(chan []*corev1.Pod, 1)
		pods <- []*corev1.Pod{newPod("web-"+name, "serve")}
		running.Add(1)
		var once sync.Once
		options := agent.Options{Logger: quiet, Ephemeral: true, Runtime: critest.New(critest.Options{}), Sources: []source.Source{source.Pods("code", pods)}}
		options.Hooks.Lifecycle.StatusChanged = func(_ *corev1.Pod, status *corev1.PodStatus) {
			if status.Phase == corev1.PodRunning {
				once.Do(running.Done)
			}
		}
		var config agent.Config
		config.Node.NodeName = name
		a, err := agent.New(ctx, config, options)
		if err != nil {
			fmt.Println(err)
			return
		}
		agents.Go(func() { _ = a.Run(ctx) })
	}
	running.Wait()
	fmt.Println("three nodes run a pod each")
	cancel()
	agents.Wait()
	// Output: three nodes run a pod each
}

// In virtual time a test of an hour takes no time. A container that exits with an error each second is restarted by the
// back-off of a kubelet, from 10 s to 5 minutes.
func TestAgentInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		script := func(*cri.ContainerConfig) critest.Script { return critest.ExitAfter(time.Second, 1) }
		pod := newPod("crash", "fail")
		pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
		pods := make(chan []*corev1.Pod, 1)
		pods <- []*corev1.Pod{pod}
		a, err := agent.New(t.Context(), agent.Config{}, agent.Options{
			Logger: quiet, Ephemeral: true, Runtime: critest.New(critest.Options{Script: script}), Sources: []source.Source{source.Pods("test", pods)},
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = a.Run(ctx) })

		time.Sleep(time.Hour)
		state, ok := a.Reconciler().Pod("crash")
		require.True(t, ok)
		require.EqualValues(t, 16, state.Status.ContainerStatuses[0].RestartCount)
		cancel()
		wg.Wait()
	})
}

// A scheduler is tested with a node whose API server and containers are in memory.
func ExampleNew_clusterInMemory() {
	server := apiservertest.NewServer(apiservertest.Options{})
	defer server.Close()
	pod := newPod("web", "serve")
	pod.Spec.NodeName = "n1" // as a scheduler binds it
	if err := server.Put(pod); err != nil {
		fmt.Println(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	options := agent.Options{Logger: quiet, Ephemeral: true, Runtime: critest.New(critest.Options{}), API: server.Config()}
	var config agent.Config
	config.Node.NodeName = "n1"
	a, err := agent.New(ctx, config, options)
	if err != nil {
		fmt.Println(err)
		return
	}
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	for ctx.Err() == nil {
		if p, _ := apiservertest.Get[*corev1.Pod](server, "default", "web"); p.Status.Phase == corev1.PodRunning {
			fmt.Println(p.Name, "runs on", p.Spec.NodeName)
			cancel()
		}
		time.Sleep(time.Millisecond)
	}
	fmt.Println(<-done)
	// Output:
	// web runs on n1
	// <nil>
}
