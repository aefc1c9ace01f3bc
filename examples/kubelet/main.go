// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Kubelet runs the pods of a node in the place of the Kubernetes kubelet: it is package agent with the command line, configuration files and
// directories of the kubelet. It takes over the pods of a kubelet that ran on the node; build it with -o kubelet, and replace the program.
//
//	kubelet --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml
//
// A unit with Type=notify is ready when the container runtime has answered. WatchdogSec restarts a program whose pods are not listed any more.
//
// With the argument check and the flags of the kubelet, it prints the effect of the change on each pod and each unsupported setting, and changes
// nothing. The exit code is 0 if all pods keep running, 1 if something changes, and 2 if the node could not be read; -o json prints JSON.
//
//	kubelet check -o json --kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml
//
// FLAGS.md of package kubeletflags and FIELDS.md of package kubeletconfig list the supported flags and fields. Other values are errors.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/seed81659283/nodeagent/agent"
	"github.com/seed81659283/nodeagent/agent/kubeletconfig"
	"github.com/seed81659283/nodeagent/agent/kubeletflags"
	"github.com/seed81659283/nodeagent/internal/changeover"
	"github.com/seed81659283/nodeagent/internal/sdnotify"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if len(os.Args) > 1 && os.Args[1] == "check" {
		code, err := check(ctx, os.Args[2:])
		if err != nil {
			fmt.Fprintln(os.Stderr, "Error:", err)
		}
		os.Exit(code)
	}
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(kubeletflags.ExitCode)
	}
}

// check prints the effect of a change over from the kubelet with these flags, and returns the exit code. It changes nothing.
func check(ctx context.Context, args []string) (code int, err error) {
	format, args, err := changeover.CutFormat(args)
	if err != nil {
		return changeover.ExitUnread, err
	}
	return changeover.Check(ctx, format, func() (d kubeletconfig.Documents, err error) {
		line, settings := kubeletflags.Parse(args)
		if settings != nil && line.Config == "" {
			return d, settings
		}
		d, err = line.Load(func(file, dropIns string) (kubeletconfig.Documents, error) {
			read, err := kubeletconfig.LoadDir(file, dropIns)
			settings = errors.Join(settings, err) // the flags apply to the remaining fields
			return read, nil
		})
		return d, errors.Join(settings, err)
	}, os.Stdout)
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
	config.Node.AdoptPods, config.Node.HostSettings = true, true
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
