// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package pleg_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/pleg"
)

func ExampleDiff() {
	web := cri.Container{ID: "web-0", PodUID: "a", State: cri.ContainerRunning}
	before := cri.Snapshot{Containers: []cri.Container{web}}
	web.State = cri.ContainerExited
	again := cri.Container{ID: "web-1", PodUID: "a", State: cri.ContainerRunning}
	after := cri.Snapshot{Containers: []cri.Container{web, again}}

	for _, e := range pleg.Diff(before, after) {
		fmt.Println(e)
	}
	// Output:
	// a ContainerDied web-0
	// a ContainerStarted web-1
}

func ExampleNew() {
	rt := critest.New(critest.Options{})
	died := make(chan pleg.Event, 1)
	g := pleg.New(rt, pleg.Options{Sink: func(events []pleg.Event) {
		for _, e := range events {
			if e.Type == pleg.ContainerDied {
				died <- e
			}
		}
	}})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- g.Run(ctx) }()

	sandbox := &cri.SandboxConfig{Pod: cri.PodIdentity{UID: "a", Name: "web", Namespace: "default"}}
	sid, _ := rt.RunSandbox(ctx, sandbox)
	cid, _ := rt.CreateContainer(ctx, sid, &cri.ContainerConfig{Name: "nginx"}, sandbox)
	_ = rt.StartContainer(ctx, cid)
	started := time.Now()

	pod, _ := g.NewerThan(ctx, "a", started)
	fmt.Println(pod.Name, pod.Containers[0].Name, pod.Containers[0].State)

	_ = rt.Kill("web/nginx", 137)
	fmt.Println((<-died).Type)
	pod, _ = g.Get("a")
	fmt.Println(pod.Containers[0].State, pod.Containers[0].ExitCode)

	cancel()
	fmt.Println(<-ended)
	// Output:
	// web nginx running
	// ContainerDied
	// exited 137
	// <nil>
}

// The status page of an agent names each pod whose state cannot be read.
func ExampleGenerator_PodHealthy() {
	rt := critest.New(critest.Options{})
	ctx, cancel := context.WithCancel(context.Background())
	sandbox := &cri.SandboxConfig{Pod: cri.PodIdentity{UID: "a", Name: "web", Namespace: "default"}}
	_, _ = rt.RunSandbox(ctx, sandbox)
	broken := &critest.Interceptor{Runtime: critest.SummaryRuntime{Runtime: rt}, Around: func(ctx context.Context, op, _ string, call func(context.Context) error) error {
		if op == "PodSandboxStatus" {
			return cri.ErrUnavailable
		}
		return call(ctx)
	}}
	g := pleg.New(broken, pleg.Options{})
	ended := make(chan error)
	go func() { ended <- g.Run(ctx) }()

	for g.PodHealthy("a") == nil {
		time.Sleep(time.Millisecond)
	}
	fmt.Println("node:", g.Healthy())
	if e, ok := errors.AsType[*pleg.PodError](g.PodHealthy("a")); ok {
		fmt.Println("pod:", e.PodUID, e.Call, e.Err)
	}
	fmt.Println("pods with errors:", len(g.Status().Pods))
	cancel()
	<-ended
	// Output:
	// node: <nil>
	// pod: a SandboxStatus a-0 runtime unavailable
	// pods with errors: 1
}

// A runtime lists no resources, so that a resize changes nothing that a relist shows.
func ExampleGenerator_Reinspect() {
	rt := critest.SummaryRuntime{Runtime: critest.New(critest.Options{})}
	ctx, cancel := context.WithCancel(context.Background())
	sandbox := &cri.SandboxConfig{Pod: cri.PodIdentity{UID: "a", Name: "web", Namespace: "default"}}
	sid, _ := rt.RunSandbox(ctx, sandbox)
	cid, _ := rt.CreateContainer(ctx, sid, &cri.ContainerConfig{Name: "app", Resources: &cri.Resources{CPUShares: 100}}, sandbox)
	_ = rt.StartContainer(ctx, cid)
	g := pleg.New(rt, pleg.Options{})
	ended := make(chan error)
	go func() { ended <- g.Run(ctx) }()
	_, _ = g.NewerThan(ctx, "a", time.Time{})

	_ = rt.UpdateContainer(ctx, cid, &cri.Resources{CPUShares: 200}, nil)
	updated := time.Now()
	g.Reinspect("a")
	pod, _ := g.NewerThan(ctx, "a", updated)
	fmt.Println(pod.Containers[0].Resources.CPUShares)
	cancel()
	<-ended
	// Output: 200
}
