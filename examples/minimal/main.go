// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Minimal runs the pods of a directory of manifests and prints a line for each change of a pod. With -cri it drives
// containerd or CRI-O, without it runs the pods as plain processes of this machine. When it is stopped the pods go
// on, and the next start finds them again; -stop-on-exit takes them down.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/process"
	"github.com/seed81659283/nodeagent/cri/remote"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/lifecycle/source"
	"github.com/seed81659283/nodeagent/pleg"
)

func main() {
	process.Main() // returns at once unless this program was started as the keeper of a process
	var (
		endpoint  = flag.String("cri", "", "runtime, such as unix:///run/containerd/containerd.sock (none: plain processes)")
		manifests = flag.String("manifests", "", "directory of pod manifests, or a single file")
		node      = flag.String("node", hostname(), "name of this node")
		state     = flag.String("state", "/var/lib/nodeagent", "directory of the state of plain processes")
		logs      = flag.String("logs", podspec.DefaultLogRoot, "directory of the pods' logs")
		stopPods  = flag.Bool("stop-on-exit", false, "take the pods down on SIGTERM and SIGINT")
		verbose   = flag.Bool("v", false, "log what is done")
	)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	log := slog.New(slog.DiscardHandler)
	if *verbose {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	if err := run(ctx, *endpoint, *manifests, *node, *state, *logs, *stopPods, log); err != nil {
		fmt.Fprintln(os.Stderr, "minimal:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, endpoint, manifests, node, state, logs string, stopPods bool, log *slog.Logger) error {
	if manifests == "" {
		return errors.New("-manifests is required")
	}
	runtime, closeRuntime, err := open(ctx, endpoint, state, log)
	if err != nil {
		return err
	}
	defer closeRuntime()
	var reconciler *lifecycle.Reconciler
	generator := pleg.New(runtime, pleg.Options{Logger: log, Sink: func(events []pleg.Event) {
		for _, e := range events {
			reconciler.Changed(e.PodUID)
		}
	}})
	reconciler = lifecycle.New(runtime, generator, lifecycle.Options{
		Spec: podspec.Options{LogRoot: logs}, Sources: []string{source.File}, Logger: log,
		Hooks: lifecycle.Hooks{Status: printer(), Gone: func(pod cri.PodIdentity) { line(pod.Namespace, pod.Name, "Gone", 0, "") }},
	})
	dir := source.NewDir(manifests, source.DirOptions{NodeName: node, Logger: log})

	// The parts outlive ctx where the pods have to be taken down first.
	parts, end := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	defer wg.Wait()
	defer end()
	wg.Go(func() { _ = generator.Run(parts) })
	wg.Go(func() { _ = reconciler.Run(parts) })
	err = dir.Run(ctx, func(u source.Update) {
		for _, err := range u.Errs {
			fmt.Fprintln(os.Stderr, "minimal:", err)
		}
		if err := reconciler.Set(lifecycle.PodSet{Source: source.File, Pods: u.Pods, Incomplete: !u.Complete}); err != nil {
			fmt.Fprintln(os.Stderr, "minimal:", err)
		}
	})
	if err == nil && stopPods {
		drain, cancel := context.WithTimeout(parts, 5*time.Minute)
		defer cancel()
		err = reconciler.Drain(drain)
	}
	return err
}

func hostname() string {
	name, _ := os.Hostname()
	return strings.ToLower(name)
}

// open returns the runtime of the endpoint, or the embedded one.
func open(ctx context.Context, endpoint, state string, log *slog.Logger) (cri.Runtime, func(), error) {
	if endpoint == "" {
		runtime, err := process.Open(state, process.Options{Logger: log})
		if err != nil {
			return nil, nil, err
		}
		return runtime, func() { _ = runtime.Close() }, nil
	}
	client, err := remote.Dial(endpoint, remote.Options{})
	if err != nil {
		return nil, nil, err
	}
	if err := client.Check(ctx); err != nil {
		return nil, nil, err
	}
	return client, func() { _ = client.Close() }, nil
}

// printer returns a hook that prints a line whenever what a user would look at has changed.
func printer() func(*corev1.Pod, *corev1.PodStatus) {
	var last sync.Map // of each pod's line, by UID
	return func(pod *corev1.Pod, st *corev1.PodStatus) {
		var restarts int32
		reason := st.Reason
		for _, c := range st.ContainerStatuses {
			restarts += c.RestartCount
			switch {
			case c.State.Waiting != nil:
				reason = strings.TrimSpace(c.State.Waiting.Reason + " " + c.State.Waiting.Message)
			case c.State.Terminated != nil:
				reason = fmt.Sprintf("%s exit=%d", c.State.Terminated.Reason, c.State.Terminated.ExitCode)
			}
		}
		now := fmt.Sprint(st.Phase, restarts, reason)
		if before, _ := last.Swap(pod.UID, now); before != now {
			line(pod.Namespace, pod.Name, string(st.Phase), restarts, reason)
		}
	}
}

func line(namespace, name, phase string, restarts int32, reason string) {
	fmt.Printf("%s %s/%s %s restarts=%d %s\n", time.Now().Format(time.TimeOnly), namespace, name, phase, restarts, reason)
}
