// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Agent runs the pods of a node: those of a directory of manifests and of an HTTP endpoint, in containerd, CRI-O or as
// plain processes, with cgroups, volumes, probes, pull secrets, config maps, log rotation, and a copy on disk of what it was told
// last, which it runs when it starts without its sources. When it is stopped the pods go on.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/seed81659283/nodeagent/cri/process"
	"github.com/seed81659283/nodeagent/cri/remote"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podstore"
	"github.com/seed81659283/nodeagent/pleg"
)

// agent is the parts of a node agent:
//
//	directory, HTTP ──pods──► store ──► reconciler ──acts through──► cgroups, images, runtime
//	                                     ▲      ▲                                       │
//	                                   probes   └─────changed───── generator ◄───events─┘
//	                                                                   └──running──► rotator of logs
type agent struct {
	config
	log *slog.Logger

	store                 *podstore.Store // keeps what the sources want: sources.go
	*lifecycle.Reconciler                 // does it: options.go, probes.go, images.go, isolation.go
	runtime               runtime         // runs containers: runtime.go
	client                *remote.Client  // the runtime as well; nil: pods are plain processes
	generator             *pleg.Generator // notices what happens to them, also for logs.go

	setUp func(context.Context) error   // before parts; nil: there is nothing to set up
	parts []func(context.Context) error // to run
}

func main() {
	process.Main() // returns at once unless this program was started as the keeper of a process
	c, err := parse(os.Args[1:])
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
		defer stop()
		a := &agent{config: c, log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: c.LogLevel}))}
		if err = a.build(ctx); err == nil {
			err = a.run(ctx)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		os.Exit(1)
	}
}

// build makes the parts and connects them, as they are drawn above from right to left.
func (a *agent) build(ctx context.Context) (err error) {
	if err := a.openRuntime(ctx); err != nil {
		return err
	}
	a.generator = pleg.New(a.runtime, pleg.Options{Logger: a.log})
	if err := a.rotateLogs(); err != nil {
		return err
	}
	o := a.options()
	o.Probes = a.probes()
	if a.client != nil { // plain processes have neither
		if err := a.pullImages(ctx, &o); err != nil {
			return err
		}
		if err := a.isolate(ctx, &o); err != nil {
			return err
		}
		if err := a.mount(&o); err != nil {
			return err
		}
	}
	if a.Reconciler, err = lifecycle.New(a.runtime, a.generator, o); err != nil {
		return err
	}
	a.store = podstore.New(a.state("pods.store"), podstore.Options{Sources: a.sources(), Logger: a.log})
	a.parts = append(a.parts, a.generator.Run, a.Run, a.store.Run)
	return nil
}

// run runs the parts until ctx ends. They outlive it where the pods have to be taken down first.
func (a *agent) run(ctx context.Context) error {
	parts, end := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	defer func() { end(); wg.Wait(); _ = a.runtime.Close() }()
	if a.setUp != nil {
		if err := a.setUp(ctx); err != nil {
			return err
		}
	}
	a.load()
	running, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	for _, part := range a.parts {
		wg.Go(func() {
			if err := part(parts); err != nil {
				a.log.Error("a part ended", "error", err)
				fail(err) // as when another agent has the directory
			}
		})
	}
	a.watch(running)
	if ctx.Err() == nil {
		return context.Cause(running)
	}
	if !a.StopOnExit {
		return nil
	}
	ctx, cancel := context.WithTimeout(parts, 5*time.Minute)
	defer cancel()
	return a.Drain(ctx)
}
