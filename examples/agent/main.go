// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Agent runs the pods of a node: those that an API server binds to it, of a directory of manifests and of an HTTP endpoint, in
// containerd, CRI-O or as plain processes, with cgroups, volumes, probes, pull secrets, config maps, log rotation, eviction, and a copy on
// disk of what it was told last, which it runs when it starts without its sources. When it is stopped the pods go on.
//
// Build it with -tags=grpcnotrace: the traces of gRPC, which it does not serve, use text/template, for which the linker has to keep all
// methods of all types. That is 4.9 MB of a program of 36 MB.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	goruntime "runtime"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups/driver"
	"github.com/seed81659283/nodeagent/cgroups/podtree"
	"github.com/seed81659283/nodeagent/cri/process"
	"github.com/seed81659283/nodeagent/cri/remote"
	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/gc"
	"github.com/seed81659283/nodeagent/internal/memreturn"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podstore"
	"github.com/seed81659283/nodeagent/nodeapi/auth"
	"github.com/seed81659283/nodeagent/nodestatus/cert"
	"github.com/seed81659283/nodeagent/nodestatus/shutdown"
	nodestats "github.com/seed81659283/nodeagent/nodestatus/summary"
	"github.com/seed81659283/nodeagent/pleg"
	"github.com/seed81659283/nodeagent/volume"
)

// agent is the parts of a node agent:
//
//	API server ◄──statuses, events, mirrors───┐
//	     └──pods──┐                           │
//	directory, HTTP ──pods──► store ──► reconciler ──acts through──► cgroups, images, volumes, runtime
//	                                     ▲      ▲                                       │
//	                                   probes   └─────changed───── generator ◄───events─┘
//	                                                                   └──running──► rotator of logs
type agent struct {
	config
	log   *slog.Logger
	level *slog.LevelVar // of log

	store                 *podstore.Store      // keeps what the sources want: sources.go
	*lifecycle.Reconciler                      // does it: options.go, probes.go, images.go, isolation.go, gc.go, eviction.go
	runtime               runtime              // runs containers: runtime.go
	client                *remote.Client       // the runtime as well; nil: pods are plain processes
	tree                  *podtree.Tree        // of cgroups; nil: pods have none
	unused                gc.ImageGC           // removes images; nil: pods are plain processes
	volumes               *volume.Volumes      // of pods; nil: they are plain processes
	evictor               *eviction.Evictor    // nil: no pod is evicted
	cluster               *cluster             // whose node this is; nil: of none
	driver, machine       *driver.Driver       // of the cgroup that kubepods is in, and of that of the whole machine; nil: pods have none
	slices                bool                 // their cgroups are slices of systemd
	collector             *nodestats.Collector // measures them: measure.go
	recent                *nodestats.Recent    // the same for the agent's own API, where it may be seconds old
	inhibitor             *shutdown.Inhibitor  // has the machine wait for pods; nil: it does not
	serving               *cert.Serving        // certificate of the agent's own API: encryption.go; nil: it gets none
	meter                 *meter               // counts what all of them do: metrics.go
	clientCAs             *auth.CAFile         // of the clients of that; nil: they have no certificates
	atStart               corev1.ResourceList  // allocatable resources of the machine at the start: node.go
	generator             *pleg.Generator      // notices what happens to them, also for logs.go

	setUp func(context.Context) error   // before parts; nil: there is nothing to set up
	parts []func(context.Context) error // to run
}

func main() {
	process.Main() // returns at once unless this program was started as the keeper of a process
	c, err := parse(os.Args[1:])
	if err == nil {
		c.profile()
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
		defer stop()
		a := newAgent(c)
		memreturn.LimitToCgroup(a.log)
		if err = a.build(ctx); err == nil {
			err = a.run(ctx)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		os.Exit(1)
	}
}

// profile turns off the heap profile, which takes 1.6 MiB, where no handler serves it.
func (c *config) profile() {
	if !c.serves() || !unless(c.EnableProfilingHandler, true) {
		goruntime.MemProfileRate = 0
	}
}

func newAgent(c config) *agent {
	level := &slog.LevelVar{}
	level.Set(c.LogLevel)
	return &agent{config: c, level: level, log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))}
}

// build makes the parts and connects them, as they are drawn above from right to left.
func (a *agent) build(ctx context.Context) (err error) {
	if err := a.count(); err != nil {
		return err
	}
	if err := a.sizeNode(ctx); err != nil {
		return err
	}
	if err := a.openRuntime(ctx); err != nil {
		return err
	}
	a.generator = pleg.New(a.runtime, pleg.Options{Logger: a.log, Hooks: a.meter.PLEG()})
	if err := a.connect(); err != nil {
		return err
	}
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
	if a.cluster != nil {
		a.cluster.admitAsNode(&o)
	}
	if err := a.inhibitShutdown(&o); err != nil {
		return err
	}
	o.Hooks = a.meter.Lifecycle(o.Hooks)
	if a.Reconciler, err = lifecycle.New(a.runtime, a.generator, o); err != nil {
		return err
	}
	if a.cluster != nil {
		if err := a.cluster.join(); err != nil {
			return err
		}
	}
	if err := a.collectLeftovers(&o); err != nil {
		return err
	}
	if err := a.serve(ctx); err != nil {
		return err
	}
	if err := a.takeManifests(); err != nil {
		return err
	}
	a.store = podstore.New(a.state("pods.store"), podstore.Options{Sources: a.sources(), Logger: a.log})
	a.parts = append(a.parts, a.generator.Run, a.Run, a.store.Run, func(ctx context.Context) error { return memreturn.Run(ctx, a.log) })
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
	loaded := a.loadStore()
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
	setLoaded(running, &wg, a.log, loaded, a.set)
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
