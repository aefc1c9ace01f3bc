// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package pleg_test

import (
	"context"
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
