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
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

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
	c := config{log: slog.New(slog.DiscardHandler)}
	flag.StringVar(&c.endpoint, "cri", "", "runtime, such as unix:///run/containerd/containerd.sock (none: plain processes)")
	flag.StringVar(&c.manifests, "manifests", "", "directory of pod manifests, or a single file")
	flag.StringVar(&c.node, "node", hostname(), "name of this node")
	flag.StringVar(&c.state, "state", "/var/lib/nodeagent", "directory of what probes found, files of pods, and plain processes")
	flag.StringVar(&c.logs, "logs", podspec.DefaultLogRoot, "directory of the pods' logs")
	flag.StringVar(&c.cgroupRoot, "cgroup-root", "/", "cgroup that kubepods is made in, with -cri (empty: pods get no cgroup)")
	flag.BoolVar(&c.stopPods, "stop-on-exit", false, "take the pods down on SIGTERM and SIGINT")
	verbose := flag.Bool("v", false, "log what is done")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if *verbose {
		c.log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	err := c.complete(flag.Args())
	if err == nil {
		err = c.run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "minimal:", err)
		os.Exit(1)
	}
}

func (c config) run(ctx context.Context) error {
	runtime, closeRuntime, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer closeRuntime()
	generator := pleg.New(runtime, pleg.Options{Logger: c.log})
	o := lifecycle.Options{
		Spec: podspec.Options{LogRoot: c.logs}, Sources: []string{source.File}, Logger: c.log,
		PodRoot: filepath.Join(c.state, "pods"), NoMounts: c.endpoint == "", // plain processes have none
		Hooks: lifecycle.Hooks{Status: printer(), Gone: func(pod cri.PodIdentity) { line(pod.Namespace, pod.Name, "Gone") }},
	}
	if c.endpoint == "" { // nor an address, but that of the host
		o.Spec.HostIPs = func() []netip.Addr { return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})} }
	}
	tree, err := c.openCgroups(ctx, runtime, &o)
	if err != nil {
		return fmt.Errorf("pod cgroups: %w", err)
	}
	defer tree.close()
	probes, err := c.openProbes(runtime)
	if err != nil {
		return fmt.Errorf("probes: %w", err)
	}
	o.Probes = probes
	reconciler, err := lifecycle.New(runtime, generator, o)
	if err != nil {
		return err
	}
	if err := tree.setup(ctx, reconciler); err != nil {
		return fmt.Errorf("pod cgroups: %w", err)
	}

	// The parts outlive ctx where the pods have to be taken down first.
	parts, end := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	defer wg.Wait()
	defer end()
	wg.Go(func() { _ = generator.Run(parts) })
	running, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	wg.Go(func() {
		if err := reconciler.Run(parts); err != nil {
			fail(err) // as when another agent has the directory
		}
	})
	wg.Go(func() { tree.run(parts) })
	wg.Go(func() { probes.run(parts) })
	dir := source.NewDir(c.manifests, source.DirOptions{NodeName: c.node, Logger: c.log})
	err = dir.Run(running, func(u source.Update) {
		for _, err := range u.Errs {
			fmt.Fprintln(os.Stderr, "minimal:", err)
		}
		if err := reconciler.Set(lifecycle.PodSet{Source: source.File, Pods: u.Pods, Incomplete: !u.Complete}); err != nil {
			fmt.Fprintln(os.Stderr, "minimal:", err)
		}
	})
	if ctx.Err() == nil {
		return errors.Join(err, context.Cause(running))
	}
	if err == nil && c.stopPods {
		drain, cancel := context.WithTimeout(parts, 5*time.Minute)
		defer cancel()
		err = reconciler.Drain(drain)
	}
	return err
}

// open returns the runtime of the endpoint, or the embedded one.
func (c config) open(ctx context.Context) (cri.Runtime, func(), error) {
	if c.endpoint == "" {
		runtime, err := process.Open(c.state, process.Options{Logger: c.log})
		if err != nil {
			return nil, nil, err
		}
		return runtime, func() { _ = runtime.Close() }, nil
	}
	client, err := remote.Dial(c.endpoint, remote.Options{})
	if err != nil {
		return nil, nil, err
	}
	if err := client.Check(ctx); err != nil {
		return nil, nil, err
	}
	return client, func() { _ = client.Close() }, nil
}
