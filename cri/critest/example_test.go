// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package critest_test

import (
	"context"
	"fmt"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
)

// A container that ignores its stop signal is killed when its grace is over.
func ExampleNew() {
	rt := critest.New(critest.Options{Script: critest.ByName(map[string]critest.Script{
		"stubborn": critest.IgnoreTERM(),
	})})
	ctx := context.Background()
	s := &cri.SandboxConfig{Pod: cri.PodIdentity{UID: "u1", Name: "web", Namespace: "default"}}
	sandbox, _ := rt.RunSandbox(ctx, s)
	id, _ := rt.CreateContainer(ctx, sandbox, &cri.ContainerConfig{Name: "stubborn"}, s)
	_ = rt.StartContainer(ctx, id)
	_ = rt.StopContainer(ctx, id, time.Second)

	c, _ := rt.Container("web/stubborn")
	fmt.Println(c.ID, c.State, c.ExitCode, c.Reason)
	for _, call := range rt.Calls() {
		fmt.Println(call)
	}
	// Output:
	// u1-stubborn-0 exited 137 Error
	// RunPodSandbox default/web
	// CreateContainer default/web/stubborn
	// StartContainer default/web/stubborn
	// StopContainer default/web/stubborn grace=1s
}

// What a container does is a script: here it says that it has started, and is evicted, in a reason of its own, after 5 ms.
func ExampleScript() {
	rt := critest.New(critest.Options{Script: func(*cri.ContainerConfig) critest.Script {
		return critest.Script{
			Started: func(c cri.Container) { fmt.Println(c.Name, c.State) },
			Exit:    &critest.Exit{After: 5 * time.Millisecond, Code: 137, Reason: "Evicted", Message: "out of disk"},
		}
	}})
	ctx := context.Background()
	s := &cri.SandboxConfig{Pod: cri.PodIdentity{UID: "u1", Name: "web", Namespace: "default"}}
	sandbox, _ := rt.RunSandbox(ctx, s)
	id, _ := rt.CreateContainer(ctx, sandbox, &cri.ContainerConfig{Name: "app"}, s)
	_ = rt.StartContainer(ctx, id)
	c, _ := rt.Container("web/app")
	for ; c.State != cri.ContainerExited; c, _ = rt.Container("web/app") {
		time.Sleep(time.Millisecond)
	}
	fmt.Println(c.Name, c.State, c.ExitCode, c.Reason, c.Message)
	// Output:
	// app running
	// app exited 137 Evicted out of disk
}

// A start whose answer is lost has taken effect all the same. The event stream is passed on beside the faults.
func ExampleFaults() {
	rt := critest.New(critest.Options{})
	f := &critest.Faults{Runtime: rt}
	f.StartContainerFunc = func(ctx context.Context, next cri.Runtime, id string) error {
		_ = next.StartContainer(ctx, id)
		return cri.ErrUnavailable
	}
	var faulty cri.Runtime = struct {
		*critest.Faults
		cri.EventStreamer
	}{f, rt}

	ctx := context.Background()
	s := &cri.SandboxConfig{Pod: cri.PodIdentity{UID: "u1", Name: "web", Namespace: "default"}}
	sandbox, _ := faulty.RunSandbox(ctx, s)
	id, _ := faulty.CreateContainer(ctx, sandbox, &cri.ContainerConfig{Name: "app"}, s)
	fmt.Println(faulty.StartContainer(ctx, id))
	c, _ := rt.Container("web/app")
	fmt.Println(c.State)
	// Output:
	// runtime unavailable
	// running
}
