// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package critest_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
)

// A container that ignores its stop signal is killed after its grace period.
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

// A script determines the behaviour of a container: this one reports its start, and exits after 5 ms with a reason of its
// own.
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

// A start takes effect although its response is lost. The event stream is passed on beside the faults.
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

// startPod runs a pod with containers of these names, and returns the ID of its sandbox.
func startPod(ctx context.Context, rt cri.Runtime, containers ...string) string {
	s := &cri.SandboxConfig{Pod: cri.PodIdentity{UID: "u1", Name: "web", Namespace: "default"}}
	sandbox, _ := rt.RunSandbox(ctx, s)
	for _, name := range containers {
		id, _ := rt.CreateContainer(ctx, sandbox, &cri.ContainerConfig{Name: name}, s)
		if err := rt.StartContainer(ctx, id); err != nil {
			fmt.Println(err)
		}
	}
	return sandbox
}

// Each container of a pod exits in its own way.
func ExampleByName() {
	rt := critest.New(critest.Options{Script: critest.ByName(map[string]critest.Script{
		"greedy":  critest.OOMAfter(time.Millisecond),
		"slow":    critest.ExitAfterStop(5*time.Millisecond, 3),
		"missing": critest.FailStart(fs.ErrNotExist),
	})})
	ctx := context.Background()
	sandbox := startPod(ctx, rt, "greedy", "slow", "missing")
	time.Sleep(10 * time.Millisecond) // in a test, use testing/synctest
	slow, _ := rt.Container("web/slow")
	_ = rt.StopContainer(ctx, slow.ID, time.Minute)
	_ = rt.StopSandbox(ctx, sandbox)
	for _, name := range []string{"greedy", "slow", "missing"} {
		c, _ := rt.Container("web/" + name)
		fmt.Println(c.Name, c.ExitCode, c.Reason)
	}
	// Output:
	// StartContainer u1-missing-0: file does not exist
	// greedy 137 OOMKilled
	// slow 3 Error
	// missing 128 StartError
}

// The OOM killer kills a container, and the event stream of the agent breaks.
func ExampleRuntime_KillWith() {
	rt := critest.New(critest.Options{})
	ctx := context.Background()
	startPod(ctx, rt, "app")
	go func() {
		time.Sleep(5 * time.Millisecond) // in a test, use testing/synctest
		_ = rt.KillWith("web/app", critest.Exit{Code: 137, Reason: "OOMKilled"})
		rt.BreakStreams(cri.ErrUnavailable)
	}()
	err := rt.StreamEvents(ctx, func(e cri.Event) error {
		c, _ := rt.Container("web/app")
		fmt.Println(e.ID, c.State, c.Reason)
		return nil
	})
	fmt.Println(err)
	// Output:
	// u1-app-0 exited OOMKilled
	// GetContainerEvents: runtime unavailable
}

// An agent calls a runtime with latency; one call hangs.
func ExampleInterceptor() {
	rt := &critest.Interceptor{
		Runtime: critest.SummaryRuntime{Runtime: critest.New(critest.Options{})}, // its lists have no details, like those of containerd
		Latency: func(string, string) time.Duration { return time.Millisecond },
		Around: func(ctx context.Context, op, id string, call func(context.Context) error) error {
			if op == "ContainerStatus" {
				return critest.Hang(ctx)
			}
			return call(ctx)
		},
	}
	ctx := context.Background()
	startPod(ctx, rt, "app")
	ctx, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	_, err := rt.ContainerStatus(ctx, "u1-app-0")
	fmt.Println(errors.Is(err, context.DeadlineExceeded))
	// Output: true
}

// A restarted agent creates a sandbox that exists: containerd refuses, CRI-O returns its ID.
func ExampleCRIO() {
	containerd := critest.SummaryRuntime{Runtime: critest.New(critest.Options{})}
	crio := &critest.CRIO{SummaryRuntime: critest.SummaryRuntime{Runtime: critest.New(critest.Options{})}}
	for _, rt := range []critest.FullRuntime{containerd, crio} {
		ctx := context.Background()
		s := &cri.SandboxConfig{Pod: cri.PodIdentity{UID: "u1", Name: "web", Namespace: "default"}}
		first, _ := rt.RunSandbox(ctx, s)
		second, err := rt.RunSandbox(ctx, s)
		fmt.Println(first == second, errors.Is(err, cri.ErrAlreadyExists))
	}
	// Output:
	// false true
	// true false
}
