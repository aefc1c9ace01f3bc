// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/logs"
	"github.com/seed81659283/nodeagent/cri/process"
)

// A container is a process of this machine, with its log and its exit code. Programs call Main first; here TestMain does.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	runtime, err := process.Open(filepath.Join(dir, "state"), process.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer runtime.Close()

	ctx := context.Background()
	pod := &cri.SandboxConfig{Pod: cri.PodIdentity{UID: "u1", Name: "job", Namespace: "default"}, LogDirectory: dir}
	sandbox, err := runtime.RunSandbox(ctx, pod)
	if err != nil {
		fmt.Println(err)
		return
	}
	id, err := runtime.CreateContainer(ctx, sandbox, &cri.ContainerConfig{
		Name: "main", LogPath: "main.log", Command: []string{"/bin/sh", "-c", "echo hello; exit 3"},
	}, pod)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := runtime.StartContainer(ctx, id); err != nil {
		fmt.Println(err)
		return
	}
	c := cri.Container{}
	for c.State != cri.ContainerExited { // an agent uses package pleg instead of polling
		time.Sleep(10 * time.Millisecond)
		snapshot, _ := runtime.List(ctx)
		c = snapshot.Containers[0]
	}
	fmt.Println(c.Name, c.State, c.ExitCode)
	_ = logs.Read(ctx, c.LogPath, os.Stdout, os.Stdout, logs.ReadOptions{})
	fmt.Println(runtime.StopSandbox(ctx, sandbox), runtime.RemoveSandbox(ctx, sandbox))
	// Output:
	// main exited 3
	// hello
	// <nil> <nil>
}
