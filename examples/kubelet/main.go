// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Kubelet runs the pods of a node in the place of the Kubernetes kubelet: it is package agent with the command line, configuration files and
// directories of the kubelet. It takes over the pods of a kubelet that ran on the node; build it with -o kubelet, and replace the program.
//
//	kubelet --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml
//
// A unit with Type=notify is ready when the container runtime has answered. WatchdogSec restarts a program whose pods are not listed any more.
//
// FLAGS.md of package kubeletflags and FIELDS.md of package kubeletconfig list the supported flags and fields. Other values are errors.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/seed81659283/nodeagent/agent"
	"github.com/seed81659283/nodeagent/agent/kubeletconfig"
	"github.com/seed81659283/nodeagent/agent/kubeletflags"
	"github.com/seed81659283/nodeagent/internal/sdnotify"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(kubeletflags.ExitCode)
	}
}

func run(ctx context.Context, args []string) error {
	line, err := kubeletflags.Parse(args)
	for _, warning := range line.Warnings {
		fmt.Fprintln(os.Stderr, warning)
	}
	if err != nil {
		return err
	}
	if line.Output != "" { // of --help or --version
		fmt.Print(line.Output)
		return nil
	}
	config, err := line.Load(kubeletconfig.LoadDir)
	if err != nil {
		return err
	}
	config.Node.AdoptPods = true
	notifier, err := sdnotify.New(os.Getenv, os.Getpid())
	if err != nil {
		return err
	}
	a, err := agent.New(ctx, config, agent.Options{OwnProcess: true})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	wg.Go(func() { notifier.Run(ctx, a.Healthy, slog.New(slog.NewTextHandler(os.Stderr, nil))) })
	return a.Run(ctx)
}
