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

	"github.com/seed81659283/nodeagent/apiserver"
	"github.com/seed81659283/nodeagent/cgroups/podtree"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/remote"
	"github.com/seed81659283/nodeagent/device/placement"
	"github.com/seed81659283/nodeagent/device/plugin"
	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/gc"
	"github.com/seed81659283/nodeagent/internal/iptables"
	"github.com/seed81659283/nodeagent/internal/memreturn"
	"github.com/seed81659283/nodeagent/internal/partgroup"
	"github.com/seed81659283/nodeagent/internal/runonce"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/admission"
	"github.com/seed81659283/nodeagent/lifecycle/podstore"
	"github.com/seed81659283/nodeagent/nodeapi"
	"github.com/seed81659283/nodeagent/nodeapi/prom"
	"github.com/seed81659283/nodeagent/nodestatus/heartbeat"
	"github.com/seed81659283/nodeagent/nodestatus/machine"
	"github.com/seed81659283/nodeagent/pleg"
	"github.com/seed81659283/nodeagent/shutdown"
	"github.com/seed81659283/nodeagent/stats"
	"github.com/seed81659283/nodeagent/volume"
)

// Agent is a whole node: the engines of this module, connected as in the kubelet. Create it with [New].
type Agent struct {
	config  Config
	options Options
	log     *slog.Logger
	level   *slog.LevelVar // log level for /debug/flags/v; nil: clients may not set it

	pods    lifecycle.Handle  // access to the reconciler, for parts that are created earlier
	node    heartbeat.Handle  // access to the Node object, for parts that are created earlier
	machine machine.Info      // hardware of the machine
	checks  []lifecycle.Admit // admission checks, in the kubelet's order
	store   *podstore.Store   // nil: pods are not stored on disk
	runtime cri.Runtime
	client  *remote.Client // runtime, if it is a CRI endpoint; else nil

	generator   *pleg.Generator
	cgroups     cgroupParts
	volumes     *volume.Volumes        // nil: the runtime does not support volumes
	placed      *placement.Placement   // devices and exclusive CPUs; nil: pods of Options.Runtime have none
	plugins     *plugin.Host           // of devices
	unused      gc.ImageGC             // nil: the runtime does not support images
	collector   *stats.Collector       // nil: no cgroups to measure
	cachedStats *stats.CachedCollector // collector with cached summaries
	evictor     *eviction.Evictor      // nil: no pod is evicted
	cluster     *apiserver.Parts       // nil: the node belongs to no cluster
	inhibitor   *shutdown.Inhibitor    // nil: the machine does not wait for pods
	kubelet     *prom.Kubelet          // metrics by page
	metrics     *prom.Metrics
	nodeTimes   prom.NodeHooks
	requests    prom.ServerHooks
	server      *nodeapi.Server    // nil: enableServer is false
	tls         nodeapi.TLSOptions // of server

	prepare func(context.Context) error // called before the parts run; may be nil
	parts   partgroup.Group
	once    runonce.Guard
}

// cgroupParts has the drivers and the tree of the pods' cgroups. The zero value means that pods have no cgroups.
type cgroupParts struct {
	tree            *podtree.Tree
	driver, machine Cgroups // driver of the cgroup that contains kubepods, and of the root cgroup
	systemd         bool    // cgroups are systemd slices
}

// New connects to the container runtime, and returns an agent that does not run yet. The connection ends with ctx or Run. New sends no request to the
// API server, except that a bootstrapKubeconfig without rotateCertificates waits for its certificate. An error names the invalid field of config or
// options.
func New(ctx context.Context, config Config, options Options) (_ *Agent, err error) {
	if err := setDefaults(&config, &options); err != nil {
		return nil, fmt.Errorf("config of the agent: %w", err)
	}
	a := &Agent{config: config, options: options, log: options.Logger, level: options.LogLevel}
	if a.log == nil {
		a.level = &slog.LevelVar{}
		a.level.Set(config.Node.LogLevel)
		a.log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: a.level}))
	}
	if err := a.config.PrepareHost(options.OwnProcess, a.log); err != nil {
		return nil, fmt.Errorf("config of the agent: %w", err)
	}
	if options.OwnProcess {
		if !a.servesAPI() || !*config.Kubelet.EnableProfilingHandler {
			runtime.MemProfileRate = 0 // no handler serves the heap profile, which takes 1.6 MiB
		}
		memreturn.LimitToCgroup(a.log)
		a.parts.Add("memory return", func(ctx context.Context) error { return memreturn.Run(ctx, a.log) })
	}
	if *config.Kubelet.MakeIPTablesUtilChains {
		a.parts.Add("iptables chains", iptables.NewChains(iptables.Options{Logger: a.log}).Run)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.closeRuntime())
		}
	}()
	pods := &lifecycle.Options{}
	for _, connect := range []func(context.Context, *lifecycle.Options) error{ // each needs the parts before it
		a.openMetrics, a.readMachine, a.openRuntime, a.createPLEG, a.createClusterParts, a.setPodOptions, a.createImageParts, a.createPodParts, a.createDevices,
		a.inhibitShutdown, a.createEvictor, a.createPreemptor, a.createReconciler, a.createContainerGC, a.createServer, a.addHealthz, a.addManifestServer, a.openStore,
	} {
		if err := connect(ctx, pods); err != nil {
			return nil, fmt.Errorf("make the agent: %w", err)
		}
	}
	a.once.Require("agent.Agent", a.log, nil)
	return a, nil
}

// createReconciler creates the reconciler, which starts and stops the containers of pods, with all admission checks.
func (a *Agent) createReconciler(_ context.Context, opts *lifecycle.Options) error {
	opts.Admit = admission.Chain(append([]lifecycle.Admit{a.options.Admit}, a.checks...)...)
	r, err := lifecycle.New(a.runtime, a.generator, *opts)
	if err != nil {
		return err
	}
	a.pods.Set(r)
	a.parts.Add("reconciler", r.Run)
	return nil
}

// openStore creates the file store of the pods. A restarted agent reads its pods from there. With Options.Ephemeral there is no store.
func (a *Agent) openStore(context.Context, *lifecycle.Options) error {
	if !a.options.Ephemeral {
		a.store = podstore.New(a.filePath("pods.store"), podstore.Options{Sources: sourceNames(&a.config, &a.options), Logger: a.log})
		a.parts.Add("pod store", a.store.Run)
	}
	return nil
}

// drainTimeout is how long Run waits for pods to terminate under drainOnExit.
const drainTimeout = 5 * time.Minute

// Run runs the node until ctx ends or a part fails, and returns the error of that part. Pods keep running unless drainOnExit is set. Call Run once.
func (a *Agent) Run(ctx context.Context) (err error) {
	if err := a.once.Begin(); err != nil {
		return fmt.Errorf("agent.Agent: %w", err)
	}
	defer a.once.End()
	parts, end := context.WithCancel(context.WithoutCancel(ctx)) // they outlive ctx to drain the pods
	var wg sync.WaitGroup
	defer func() { end(); wg.Wait(); err = errors.Join(err, a.closeRuntime()) }()
	if a.prepare != nil {
		if err := a.prepare(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
	feed := a.createFeed() // the store is loaded before it runs
	running, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	a.parts.Start(parts, &wg, fail, a.log) // a part fails if, for example, another agent uses its directory
	if err := feed.Run(running); err != nil {
		fail(err)
	}
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

// closeRuntime closes the connection to the container runtime, and unregisters the metrics from Options.Registerer.
func (a *Agent) closeRuntime() error {
	if a.kubelet != nil {
		a.kubelet.Close()
	}
	if closer, ok := a.runtime.(io.Closer); ok {
		return closer.Close()
	}
	return nil
}

// Reconciler returns the engine that starts and stops the containers of pods.
func (a *Agent) Reconciler() *lifecycle.Reconciler { return a.pods.Reconciler() }

// Evictor returns the engine that evicts pods. It is nil if there are no eviction thresholds, or neither cgroups nor Options.Measurer.
func (a *Agent) Evictor() *eviction.Evictor { return a.evictor }

// Healthy returns an error if the pods of the runtime were not listed for long, or plugins of devices cannot register: a watchdog may then restart
// the agent. Call it after New.
func (a *Agent) Healthy() error {
	if err := a.generator.Healthy(); err != nil || a.plugins == nil {
		return err
	}
	return a.plugins.Check()
}

// Handler returns the HTTP API of the node, for an HTTP server of the caller. The handler authenticates clients. It is nil if enableServer is false.
func (a *Agent) Handler() http.Handler {
	if a.server == nil {
		return nil
	}
	return a.server.Handler()
}

// Node returns the Node object with the last computed status, or nil if the node belongs to no cluster.
func (a *Agent) Node() *corev1.Node {
	if a.cluster == nil {
		return nil
	}
	return a.node.Node()
}
