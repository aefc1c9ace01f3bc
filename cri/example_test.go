// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cri_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
)

// A pod is a sandbox and the containers in it. This runtime is in memory; the calls are identical with package remote or
// process.
func ExampleRuntime() {
	var runtime cri.Runtime = critest.New(critest.Options{})
	ctx := context.Background()

	pod := &cri.SandboxConfig{Pod: cri.PodIdentity{UID: "u1", Name: "web", Namespace: "default"}}
	sandbox, err := runtime.RunSandbox(ctx, pod)
	if err != nil {
		fmt.Println(err)
		return
	}
	id, err := runtime.CreateContainer(ctx, sandbox, &cri.ContainerConfig{
		Name:   "server",
		Image:  cri.ImageSpec{Image: "nginx"},
		Labels: map[string]string{cri.LabelPodUID: pod.Pod.UID, cri.LabelContainerName: "server"},
	}, pod)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(runtime.StartContainer(ctx, id))

	snapshot, err := runtime.List(ctx)
	for p := range snapshot.Pods() {
		fmt.Println(p.Namespace, p.Name, p.Sandboxes[0].State, p.Containers[0].Name, p.Containers[0].State)
	}
	fmt.Println(err)

	fmt.Println(runtime.StopContainer(ctx, id, 2*time.Second))
	fmt.Println(runtime.StopSandbox(ctx, sandbox), runtime.RemoveSandbox(ctx, sandbox))
	fmt.Println(runtime.StopContainer(ctx, id, 0), "again")
	// Output:
	// <nil>
	// default web ready server running
	// <nil>
	// <nil>
	// <nil> <nil>
	// <nil> again
}

// Optional capabilities are found with a type assertion.
func ExampleExecer() {
	var runtime cri.Runtime = critest.New(critest.Options{})
	execer, ok := runtime.(cri.Execer)
	if !ok {
		fmt.Println("this runtime runs no commands in containers")
		return
	}
	_, err := execer.ExecSync(context.Background(), "no-such-container", []string{"date"}, time.Second)
	fmt.Println(errors.Is(err, cri.ErrNotFound))
	// Output: true
}

// An agent that shares a runtime with another agent lists only the sandboxes of its own namespace.
func ExampleListerFunc() {
	runtime := critest.New(critest.Options{})
	ctx := context.Background()
	for _, namespace := range []string{"mine", "theirs"} {
		_, _ = runtime.RunSandbox(ctx, &cri.SandboxConfig{Pod: cri.PodIdentity{UID: namespace, Name: "web", Namespace: namespace}})
	}
	var own cri.Lister = cri.ListerFunc(func(ctx context.Context) (cri.Snapshot, error) {
		s, err := runtime.List(ctx)
		s.Sandboxes = slices.DeleteFunc(s.Sandboxes, func(s cri.Sandbox) bool { return s.Pod.Namespace != "mine" })
		return s, err
	})
	snapshot, err := own.List(ctx)
	fmt.Println(len(snapshot.Sandboxes), err)
	// Output: 1 <nil>
}

// An agent reacts to the error of a call.
func ExampleError() {
	for _, err := range []error{cri.ErrNotFound, cri.ErrAlreadyExists, cri.ErrTooLarge, cri.ErrTooMany, cri.ErrUnavailable} {
		switch err := error(&cri.Error{Op: "ContainerStatus", ID: "c1", Err: err}); {
		case errors.Is(err, cri.ErrNotFound):
			fmt.Println("removed:", err)
		case errors.Is(err, cri.ErrAlreadyExists), errors.Is(err, cri.ErrTooLarge):
			fmt.Println("final:", err)
		case errors.Is(err, cri.ErrTooMany), errors.Is(err, cri.ErrUnavailable):
			fmt.Println("retry:", err)
		}
	}
	// Output:
	// removed: ContainerStatus c1: not found
	// final: ContainerStatus c1: already exists
	// final: ContainerStatus c1: answer is too large
	// retry: ContainerStatus c1: too many requests
	// retry: ContainerStatus c1: runtime unavailable
}

// An Execer truncates output to the limit of its caller.
func ExampleMaxOutput() {
	execSync := func(ctx context.Context) []byte {
		output := []byte("all of a long output")
		if most, ok := cri.MaxOutput(ctx); ok {
			output = output[:min(len(output), most)]
		}
		return output
	}
	fmt.Printf("%s\n", execSync(cri.WithMaxOutput(context.Background(), 3)))
	// Output: all
}

// metered is a runtime that counts the system calls of each sandbox.
type metered struct{ cri.Runtime }

func (metered) MetricDescriptors(context.Context) ([]cri.MetricDescriptor, error) {
	return []cri.MetricDescriptor{{Name: "sandbox_syscalls_total", Help: "System calls of a sandbox."}}, nil
}

func (m metered) SandboxMetrics(ctx context.Context) (all []cri.SandboxMetrics, err error) {
	snapshot, err := m.List(ctx)
	for _, s := range snapshot.Sandboxes {
		all = append(all, cri.SandboxMetrics{ID: s.ID, Metrics: []cri.Metric{{Name: "sandbox_syscalls_total", Value: new(uint64(7))}}})
	}
	return all, err
}

// A runtime defines its own metrics, which a client exports under their names.
func ExampleMetricsLister() {
	ctx := context.Background()
	var runtime cri.Runtime = metered{critest.New(critest.Options{})}
	_, _ = runtime.RunSandbox(ctx, &cri.SandboxConfig{Pod: cri.PodIdentity{UID: "u1", Name: "web", Namespace: "default"}})
	if lister, ok := runtime.(cri.MetricsLister); ok {
		all, err := lister.SandboxMetrics(ctx)
		fmt.Println(all[0].ID, all[0].Metrics[0].Name, *all[0].Metrics[0].Value, err)
	}
	// Output: u1-0 sandbox_syscalls_total 7 <nil>
}
