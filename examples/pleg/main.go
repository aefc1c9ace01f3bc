// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Pleg prints a line for each pod lifecycle event of a runtime, whichever agent runs the pods:
//
//	pleg -cri unix:///run/containerd/containerd.sock
//	10:42:01 ContainerStarted default/web server running
//	10:42:09 ContainerDied default/web server exited 137
//
// The first lines show the existing containers. It changes nothing.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/remote"
	"github.com/seed81659283/nodeagent/pleg"
)

func main() {
	endpoint := flag.String("cri", "unix:///run/containerd/containerd.sock", "endpoint of the container runtime")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := printEvents(ctx, *endpoint); err != nil {
		fmt.Fprintln(os.Stderr, "pleg:", err)
		os.Exit(1)
	}
}

// printEvents prints events until ctx ends.
func printEvents(ctx context.Context, endpoint string) error {
	runtime, err := remote.Dial(endpoint, remote.Options{})
	if err != nil {
		return err
	}
	defer runtime.Close()
	if err := runtime.Check(ctx); err != nil { // Dial does not connect, and a Generator waits for its runtime
		return err
	}
	var generator *pleg.Generator
	names := map[string]string{} // of pods, by UID: a pod may be removed before its last event arrives
	generator = pleg.New(runtime, pleg.Options{Sink: func(events []pleg.Event) {
		for _, e := range events {
			pod, _ := generator.Get(e.PodUID) // state at the last relist
			if pod.Name != "" {
				names[e.PodUID] = pod.Namespace + "/" + pod.Name
			}
			fmt.Println(time.Now().Format(time.TimeOnly), e.Type, cmp.Or(names[e.PodUID], e.PodUID), describeObject(pod, e.ID))
		}
		maps.DeleteFunc(names, func(uid, _ string) bool {
			pod, err := generator.Get(uid)
			return err == nil && len(pod.Sandboxes)+len(pod.Containers) == 0
		})
	}})
	return generator.Run(ctx)
}

// describeObject returns the state of the container or sandbox with this ID. For a container it also returns the name.
func describeObject(pod cri.Pod, id string) string {
	for _, s := range pod.Sandboxes {
		if s.ID == id {
			return "sandbox " + s.State.String()
		}
	}
	for _, c := range pod.Containers {
		switch {
		case c.ID != id:
		case c.State == cri.ContainerExited:
			return fmt.Sprint(c.Name, " exited ", c.ExitCode)
		default:
			return c.Name + " " + c.State.String()
		}
	}
	return id
}
