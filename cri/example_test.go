// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cri_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
)

// A pod is a sandbox and the containers in it. The runtime is one in memory here; with that of package remote or process
// the calls are the same.
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

// What only some runtimes can do is found with a type assertion.
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
