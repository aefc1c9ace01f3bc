// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"runtime"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/apiserver/cert"
	"github.com/seed81659283/nodeagent/cgroups/driver"
	"github.com/seed81659283/nodeagent/cgroups/podtree"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/remote"
	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/gc"
	"github.com/seed81659283/nodeagent/internal/memreturn"
	"github.com/seed81659283/nodeagent/internal/runonce"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podstore"
	"github.com/seed81659283/nodeagent/nodeapi"
	"github.com/seed81659283/nodeagent/nodeapi/auth"
	"github.com/seed81659283/nodeagent/pleg"
	"github.com/seed81659283/nodeagent/shutdown"
	"github.com/seed81659283/nodeagent/stats"
	"github.com/seed81659283/nodeagent/volume"
)

// Agent is a node: the engines of this module, connected.
//
//	API server ◄──statuses, events, mirrors───┐
//	     └──pods──┐                           │
//	directory, HTTP ──pods──► store ──► reconciler ──acts through──► cgroups, images, volumes, runtime
//	                                     ▲      ▲                                       │
//	                                   probes   └─────changed───── generator ◄───events─┘
//	                                                                   └──running──► rotator of logs
type Agent struct {
	config  Config
	options Options
	log     *slog.Logger
	level   *slog.LevelVar // nil: clients may not set it

	pods    lifecycle.Handle // the reconciler, for parts that are made before it
	node    node             // the Node object, likewise
	store   *podstore.Store
	runtime cri.Runtime
	client  *remote.Client // the runtime as well; nil: there is no endpoint

	generator *pleg.Generator
	cgroups   cgroupParts
	volumes   *volume.Volumes   // nil: the runtime cannot mount
	unused    gc.ImageGC        // nil: the runtime has no images
	collector *stats.Collector  // nil: nothing is measured
	recent    *stats.Recent     // the collector where numbers may be seconds old
	evictor   *eviction.Evictor // nil: no pod is evicted
	cluster   *cluster          // nil: the node belongs to none
	inhibitor *shutdown.Inhibitor
	meter     *meter
	server    *nodeapi.Server // nil: the API of the node is not served
	serving   *cert.Serving   // nil: the server has another certificate
	clientCAs *auth.CAFile    // nil: clients have no certificates

	setUp func(context.Context) error // before parts; nil: there is nothing to set up
	parts []part
	once  runonce.Guard
}

// cgroupParts are the cgroups of pods. The zero value: pods have none.
type cgroupParts struct {
	tree            *podtree.Tree
	driver, machine *driver.Driver // of the cgroup that kubepods is in, and of the whole machine
	slices          bool           // they are slices of systemd
}

// part is an engine, or another part of the agent that runs.
type part struct {
	name string
	run  func(context.Context) error
}

// add adds a part, whose name is in the errors of Run.
func (a *Agent) add(name string, run func(context.Context) error) {
	a.parts = append(a.parts, part{name, run})
}

// New makes the parts of a node and connects them. It connects to the runtime, whose features decide about parts, until ctx ends, and to no API
// server. Errors name the field of Config, or the option. What New has opened is closed by Run, or by New before it returns an error.
func New(ctx context.Context, config Config, options Options) (_ *Agent, err error) {
	if err := config.complete(&options); err != nil {
		return nil, fmt.Errorf("config of the agent: %w", err)
	}
	a := &Agent{config: config, options: options, log: options.Logger, level: options.LogLevel}
	if a.log == nil {
		a.level = &slog.LevelVar{}
		a.level.Set(config.Node.LogLevel)
		a.log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: a.level}))
	}
	if options.OwnProcess {
		if !config.serves() || !*config.Kubelet.EnableProfilingHandler {
			runtime.MemProfileRate = 0 // no handler serves the heap profile, which takes 1.6 MiB
		}
		memreturn.LimitToCgroup(a.log)
		a.add("memory return", func(ctx context.Context) error { return memreturn.Run(ctx, a.log) })
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.close())
		}
	}()
	if err := a.build(ctx); err != nil {
		return nil, fmt.Errorf("make the agent: %w", err)
	}
	a.once.Require("agent.Agent", a.log, nil)
	return a, nil
}

// build makes the parts, as they are drawn at Agent from right to left.
func (a *Agent) build(ctx context.Context) error {
	o := &lifecycle.Options{}
	for _, step := range []func() error{
		a.makeMeter,
		func() error { return a.readMachine(ctx) },
		func() error { return a.openRuntime(ctx) },
		func() error {
			a.generator = pleg.New(a.runtime, pleg.Options{Logger: a.log, Hooks: a.meter.PLEG(a.options.Hooks.PLEG)})
			a.add("PLEG", a.generator.Run)
			return nil
		},
		a.connect,
		a.rotateLogs,
		func() error { *o = a.podOptions(); return nil },
		func() error { return a.pullImages(ctx, o) },
		func() error { return a.isolate(ctx, o) },
		func() error {
			if a.client == nil { // another runtime cannot mount
				return nil
			}
			return a.mount(o)
		},
		func() error { return a.makeEvictor(o) },
		func() error { return a.admit(o) },
		func() error { return a.makeReconciler(o) },
		a.join,
		func() error { return a.collectLeftovers(o) },
		func() error { return a.serve(ctx) },
		a.serveManifests,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	if a.options.Ephemeral {
		return nil
	}
	a.store = podstore.New(a.config.path("pods.store"), podstore.Options{Sources: a.config.sourceNames(&a.options), Logger: a.log})
	a.add("pod store", a.store.Run)
	return nil
}

func (a *Agent) makeReconciler(o *lifecycle.Options) error {
	r, err := lifecycle.New(a.runtime, a.generator, *o)
	if err == nil {
		a.pods.Set(r)
		a.add("reconciler", r.Run)
	}
	return err
}

// drainTimeout is how long Run waits for pods to terminate under drainOnExit.
const drainTimeout = 5 * time.Minute

// Run runs the node until ctx ends or a part fails, whose error it returns. The pods go on, or are terminated under drainOnExit. Call it once.
func (a *Agent) Run(ctx context.Context) (err error) {
	if err := a.once.Begin(); err != nil {
		return fmt.Errorf("agent.Agent: %w", err)
	}
	defer a.once.End()
	parts, end := context.WithCancel(context.WithoutCancel(ctx)) // they outlive ctx where the pods have to be drained
	var wg sync.WaitGroup
	defer func() { end(); wg.Wait(); err = errors.Join(err, a.close()) }()
	if a.setUp != nil {
		if err := a.setUp(ctx); err != nil {
			return err
		}
	}
	loaded := a.loadStore()
	running, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	for _, p := range a.parts {
		wg.Go(func() {
			if err := p.run(parts); err != nil {
				a.log.Error("a part of the agent ended", "part", p.name, "error", err)
				fail(fmt.Errorf("%s: %w", p.name, err)) // as when another agent has the directory
			}
		})
	}
	setLoaded(running, &wg, a.log, loaded, a.set)
	a.runSources(running, fail)
	if ctx.Err() == nil {
		return context.Cause(running)
	}
	if !a.config.Node.DrainOnExit {
		return nil
	}
	ctx, cancel := context.WithTimeout(parts, drainTimeout)
	defer cancel()
	return a.pods.Reconciler().Drain(ctx)
}

// close closes the runtime, and takes the metrics out of Options.Registerer, so that another agent can follow.
func (a *Agent) close() error {
	if a.meter != nil && a.meter.registered {
		a.options.Registerer.Unregister(a.meter.all)
	}
	if closer, ok := a.runtime.(io.Closer); ok {
		return closer.Close()
	}
	return nil
}

// Config returns the configuration with the defaults in it.
func (a *Agent) Config() Config { return a.config }

// Reconciler returns the engine that runs the pods.
func (a *Agent) Reconciler() *lifecycle.Reconciler { return a.pods.Reconciler() }

// Generator returns the PLEG.
func (a *Agent) Generator() *pleg.Generator { return a.generator }

// Runtime returns the container runtime.
func (a *Agent) Runtime() cri.Runtime { return a.runtime }

// Evictor returns the engine that evicts pods. Nil: no pod is evicted, see Options.Measurer.
func (a *Agent) Evictor() *eviction.Evictor { return a.evictor }

// Volumes returns the volumes of pods. Nil: the runtime cannot mount.
func (a *Agent) Volumes() *volume.Volumes { return a.volumes }

// Handler returns the API of the node with its authentication, for a server of one's own. Nil: enableServer is false.
func (a *Agent) Handler() http.Handler {
	if a.server == nil {
		return nil
	}
	return a.server.Handler()
}

// Node returns the Node object as the agent reported it last. Nil: the node belongs to no cluster.
func (a *Agent) Node() *corev1.Node {
	if a.node.Reporter == nil {
		return nil
	}
	return a.node.Reporter.Node()
}
