// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Command forgetful opens package process but does not call process.Main as it must. Its argument selects the mistake. A child
// process, which has other arguments, reads it from a file beside the program. The program prints how often it was started, and
// exits if that is too often.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/process"
)

// limit is how many times the program may be started before the machine is in danger.
const limit = 4

func main() {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	dir := filepath.Dir(exe)
	parent := len(os.Args) == 2 && os.Args[0] == exe
	if parent {
		write(filepath.Join(dir, "mode"), os.Args[1])
		write(filepath.Join(dir, "starts"), "")
	}
	starts := read(filepath.Join(dir, "starts")) + "x"
	write(filepath.Join(dir, "starts"), starts)
	if len(starts) > limit {
		os.Exit(1)
	}
	switch read(filepath.Join(dir, "mode")) {
	case "never":
	case "parent only":
		if parent {
			process.Main()
		}
	case "changed arguments":
		os.Args = []string{"agent"}
		process.Main()
	}
	fmt.Println("error:", run())
	fmt.Println("starts:", len(read(filepath.Join(dir, "starts"))))
}

// run starts a container, as a test would, with a new state directory.
func run() error {
	ctx := context.Background()
	root, err := os.MkdirTemp("", "forgetful")
	if err != nil {
		return err
	}
	defer os.RemoveAll(root)
	rt, err := process.Open(root, process.Options{})
	if err != nil {
		return err
	}
	defer rt.Close()
	sandbox, err := rt.RunSandbox(ctx, &cri.SandboxConfig{Pod: cri.PodIdentity{UID: "u"}})
	if err != nil {
		return err
	}
	defer rt.RemoveSandbox(ctx, sandbox)
	id, err := rt.CreateContainer(ctx, sandbox, &cri.ContainerConfig{Name: "c", Command: []string{"true"}}, nil)
	if err != nil {
		return err
	}
	return rt.StartContainer(ctx, id)
}

func write(path, content string) {
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		panic(err)
	}
}

func read(path string) string {
	content, err := os.ReadFile(path)
	if err != nil {
		panic(err)
	}
	return string(content)
}
