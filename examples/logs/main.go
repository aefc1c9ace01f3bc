// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Logs prints the log of a container from its files on this machine. It follows the log until the container exits or, with
// -f=false, stops at the end of the files. The files may be rotated meanwhile:
//
//	logs -cri unix:///run/containerd/containerd.sock -tail 10 default/web server
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/logs"
	"github.com/seed81659283/nodeagent/cri/remote"
)

func main() {
	var o logs.ReadOptions
	endpoint := flag.String("cri", "unix:///run/containerd/containerd.sock", "endpoint of the container runtime")
	tail := flag.Int64("tail", -1, "lines to begin with, from the end (-1: all)")
	flag.BoolVar(&o.Follow, "f", true, "follow the log")
	flag.BoolVar(&o.Timestamps, "timestamps", false, "put the time before each line")
	flag.Parse()
	o.TailLines, o.IncludeRotated = tail, true
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	err := readContainerLog(ctx, *endpoint, flag.Arg(0), flag.Arg(1), o)
	if err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "logs:", err)
		os.Exit(1)
	}
}

// readContainerLog prints the log of a container in a pod: the newest container with this name, or the newest of all if the
// name is empty.
func readContainerLog(ctx context.Context, endpoint, pod, name string, o logs.ReadOptions) error {
	runtime, err := remote.Dial(endpoint, remote.Options{})
	if err != nil {
		return err
	}
	defer runtime.Close()
	id, err := findContainer(ctx, runtime, pod, name)
	if err != nil {
		return err
	}
	c, err := runtime.ContainerStatus(ctx, id) // a list may omit the path
	if err != nil {
		return err
	}
	if c.LogPath == "" {
		return errors.New("the container has no log")
	}
	o.Running = func(ctx context.Context) (bool, error) {
		c, err := runtime.ContainerStatus(ctx, id)
		return c.State == cri.ContainerRunning, err
	}
	return logs.Read(ctx, c.LogPath, os.Stdout, os.Stderr, o)
}

// findContainer returns the ID of the newest container with this name in a pod. If the name is empty, it returns the newest
// of all containers.
func findContainer(ctx context.Context, runtime cri.Lister, pod, name string) (string, error) {
	snapshot, err := runtime.List(ctx)
	if err != nil {
		return "", err
	}
	var newest cri.Container
	for p := range snapshot.Pods() {
		if p.Namespace+"/"+p.Name != pod {
			continue
		}
		for _, c := range p.Containers {
			if (name == "" || c.Name == name) && c.CreatedAt.After(newest.CreatedAt) {
				newest = c
			}
		}
	}
	if newest.ID == "" {
		return "", fmt.Errorf("no container %q in pod %q: want NAMESPACE/POD [CONTAINER]", name, pod)
	}
	return newest.ID, nil
}
