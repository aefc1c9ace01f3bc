// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package heartbeat

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/seed81659283/nodeagent/internal/kubeapi"
	"github.com/seed81659283/nodeagent/internal/listener"
	"github.com/seed81659283/nodeagent/internal/runonce"
	"github.com/seed81659283/nodeagent/nodestatus"
)

// Defaults of UpdateFrequency and ReportFrequency in [ReporterOptions]. They are those of the kubelet's settings
// nodeStatusUpdateFrequency and nodeStatusReportFrequency.
const (
	DefaultUpdateFrequency = 10 * time.Second
	DefaultReportFrequency = 5 * time.Minute
)

// Hosts reads the IP addresses of the machine for the Node object. Host must return when ctx ends. nodestatus.Lookup implements
// it.
type Hosts interface {
	Host(ctx context.Context, c *nodestatus.Config) nodestatus.Host
}

// ReporterOptions configures a [Reporter]. Config.Name is required. Conditions, Capacity, Hosts, Images, Devices, Volumes and
// Runtime are the sources of the node status. If a source is nil, its values are missing in the status. Sources are called from
// several goroutines.
type ReporterOptions struct {
	Config nodestatus.Config

	Conditions nodestatus.Conditions
	Capacity   nodestatus.Capacity
	Hosts      Hosts
	Images     nodestatus.Images
	Devices    nodestatus.DeviceCapacity
	Volumes    nodestatus.Volumes
	Runtime    nodestatus.Runtime // nil counts as a runtime that is always ready

	// UpdateFrequency is the time between two updates: each computes the node status and compares it with the API server's. Zero
	// means [DefaultUpdateFrequency].
	UpdateFrequency time.Duration
	// ReportFrequency is the time after which an unchanged status is sent again. Zero means UpdateFrequency if it is set, else
	// [DefaultReportFrequency].
	ReportFrequency time.Duration
	// Reregister makes Run create the Node again after its deletion, with a back-off of 10 s to 5 min. If false, status and lease
	// stop until another client creates the Node, or the agent restarts.
	Reregister bool

	// NoRegister leaves the creation of the Node to another client: Run waits until the Node exists, does not change its labels, and then reports
	// its status. It excludes Reregister. False: Run creates the Node.
	NoRegister bool

	// ResetExtendedResources makes the registration set the extended resources of an existing Node to zero, for an agent that
	// does not remember its device plugins.
	ResetExtendedResources bool

	// PodCIDRs is called with the spec.podCIDRs of the Node once they are known and whenever they change. It is called from Run
	// with a deadline of 10 s, and retried after an error. Nil ignores them.
	PodCIDRs func(ctx context.Context, cidrs []string) error
	// Event records an event about the node. It is called from the goroutine of Run and must not block. Nil discards events.
	Event func(nodestatus.Event)

	Rand   func() float64 // in [0,1), for jitter; nil means math/rand/v2
	Logger *slog.Logger   // nil discards
	Hooks  ReporterHooks
}

// ReporterHooks are called by a [Reporter]. Each hook may be nil, is called from Run with no lock held, and must not block. A
// *corev1.Node is shared with other callers and must not be modified.
type ReporterHooks struct {
	Registered   func(node *corev1.Node)                  // the Node exists at the API server: called after each registration
	Reported     func(node *corev1.Node)                  // the API server accepted a status
	VolumesInUse func(reported []corev1.UniqueVolumeName) // status.volumesInUse at the API server: called after each report and after the first update
	Deleted      func()                                   // the Node was deleted from the API server
	Error        func(error)                              // a request or a source failed; the reporter retries it
}

// Reporter registers the Node object of an agent and keeps its status at the API server up to date. Its methods may be called
// from any goroutine, before, during and after Run.
type Reporter struct {
	opts       ReporterOptions
	name       string
	config     *rest.Config
	client     *kubeapi.Client                // for registration and status: a connection of its own
	nodes      kubeapi.Resource[*corev1.Node] // requests of client
	store      *kubeapi.Store[*corev1.Node]   // the watched Node, on another connection
	sources    *sourceReader
	duplicates *duplicateName
	guard      runonce.Guard
	wallClock  func() time.Time // time stamps of the status; time.Now except in tests

	node         atomic.Pointer[corev1.Node]
	nodeAbsent   atomic.Bool   // phase absent: the lease is not renewed
	wake         chan struct{} // holds a token while Run has work
	nodeChanged  listener.List // listeners of Notify
	nodeAppeared listener.List // called when the Node exists at the API server

	registeredOnce sync.Once     // guards the closing of registered
	registered     chan struct{} // closed once the API server has had the Node

	mu              sync.Mutex    // guards the fields below
	updateRequested bool          // Changed was called since the last update
	reportWaiters   []chan error  // calls of Report that no update has taken yet
	runEnded        chan struct{} // closed when Run returns

	loop loop // used by Run alone
}

// NewReporter returns a Reporter for the node in opts.Config. It sends no request. The error names the missing or invalid
// field of config or opts.
func NewReporter(config *rest.Config, opts ReporterOptions) (*Reporter, error) {
	if opts.Config.Name == "" {
		return nil, errors.New("heartbeat: NewReporter: ReporterOptions.Config.Name: required: see nodestatus.NodeName")
	}
	if opts.UpdateFrequency < 0 || opts.ReportFrequency < 0 {
		return nil, fmt.Errorf("heartbeat: NewReporter: ReporterOptions: UpdateFrequency %s, ReportFrequency %s: must not be negative",
			opts.UpdateFrequency, opts.ReportFrequency)
	}
	if opts.NoRegister && opts.Reregister {
		return nil, errors.New("heartbeat: NewReporter: ReporterOptions: NoRegister and Reregister are both true: only a registered Node is registered again")
	}
	if opts.ReportFrequency == 0 {
		opts.ReportFrequency = DefaultReportFrequency
		if opts.UpdateFrequency != 0 {
			opts.ReportFrequency = opts.UpdateFrequency
		}
	}
	if opts.UpdateFrequency == 0 {
		opts.UpdateFrequency = DefaultUpdateFrequency
	}
	if opts.Rand == nil {
		opts.Rand = rand.Float64
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	watching, err := kubeapi.New(config, kubeapi.Options{Logger: opts.Logger})
	if err != nil {
		return nil, fmt.Errorf("heartbeat: NewReporter: %w", err)
	}
	client, err := newHeartbeatClient(config)
	if err != nil {
		return nil, fmt.Errorf("heartbeat: NewReporter: %w", err)
	}
	r := &Reporter{
		opts: opts, name: opts.Config.Name, config: config, client: client, nodes: kubeapi.In(client, kubeapi.Nodes, ""),
		wake: make(chan struct{}, 1), wallClock: time.Now, runEnded: make(chan struct{}), registered: make(chan struct{}),
		duplicates: &duplicateName{node: opts.Config.Name, log: opts.Logger, event: opts.Event},
	}
	r.sources = &sourceReader{opts: &r.opts, factsChanged: r.Changed}
	r.store = kubeapi.NewStore(kubeapi.In(watching, kubeapi.Nodes, ""), kubeapi.StoreOptions[*corev1.Node]{
		FieldSelector: "metadata.name=" + r.name, MaxObjects: 1, Rand: opts.Rand,
		Relist:  24 * time.Hour, // each response to a report carries the Node, so a rare relist is enough
		Changed: func(...string) { signal(r.wake) },
	})
	r.loop = newLoop(r)
	r.nodeAbsent.Store(r.loop.phase == absent)
	node, _ := nodestatus.Initial(r.sources.currentFacts(r.wallClock()))
	r.node.Store(node)
	r.guard.Require("heartbeat.Reporter", opts.Logger, nil)
	return r, nil
}

// Node returns the current Node: metadata and spec from the API server, and the status last computed. It is never nil; its UID
// is empty until the Node is registered. Callers share it and must not modify it. Node does not block.
func (r *Reporter) Node() *corev1.Node { return r.node.Load() }

// WaitRegistered blocks until the Node exists at the API server. If ctx ends before, it returns an error. After that,
// [Reporter.Node] has the labels that the admission of pods requires. It can be used as apiserver.Options.WaitForNode.
func (r *Reporter) WaitRegistered(ctx context.Context) error {
	select {
	case <-r.registered:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for node %s: %w", r.name, errors.Join(context.Cause(ctx), r.guard.Err()))
	}
}

// Changed makes Run compute the node status soon, at most once a second, and report it if it has changed. Call it after a
// change, for example of a condition. Changed does not block.
func (r *Reporter) Changed() {
	r.mu.Lock()
	r.updateRequested = true
	r.mu.Unlock()
	signal(r.wake)
}

// Report computes the node status, and blocks until the API server has it. It sends only a changed status. It returns an error
// if sending fails or ctx ends.
func (r *Reporter) Report(ctx context.Context) error {
	result := make(chan error, 1)
	r.mu.Lock()
	r.reportWaiters = append(r.reportWaiters, result)
	r.mu.Unlock()
	signal(r.wake)
	select {
	case err := <-result:
		return err
	case <-r.runEnded:
		return fmt.Errorf("report status of node %s: Reporter.Run has returned", r.name)
	case <-ctx.Done():
		return fmt.Errorf("report status of node %s: %w", r.name, errors.Join(ctx.Err(), r.guard.Err()))
	}
}

// Notify registers fn, which Run calls after [Reporter.Node] has changed in more than heartbeat times. fn must not block,
// and may be called without a change. Notify panics if fn is nil.
func (r *Reporter) Notify(fn func()) {
	if fn == nil {
		panic("heartbeat: Reporter.Notify: nil function")
	}
	r.nodeChanged.Add(func(...string) { fn() })
}

// Run registers the Node, unless ReporterOptions.NoRegister is set, and reports its status until ctx ends, then returns nil. It retries after errors of the API server. A
// second call returns an error at once. Run does not delete the Node object.
func (r *Reporter) Run(ctx context.Context) error {
	if err := r.guard.Begin(); err != nil {
		return fmt.Errorf("heartbeat.Reporter: %w", err)
	}
	defer r.guard.End()
	defer close(r.runEnded)
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.awaitFacts(ctx, &wg)
	wg.Go(func() { _ = r.store.Run(ctx) }) // requests report the errors of the connection
	r.loop.startUpdates(time.Now())
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-r.wake:
		case done := <-r.loop.outcomes:
			r.loop.finishRequest(done, time.Now())
		}
		if start := r.loop.nextRequest(time.Now()); start != nil {
			wg.Go(func() { r.loop.outcomes <- start(ctx) })
		}
		r.applyPodCIDRs(ctx)
		timer.Reset(time.Until(r.loop.nextWake()))
	}
}

// awaitFacts starts to read all sources, and waits until each was read once, but at most firstReadTimeout.
func (r *Reporter) awaitFacts(ctx context.Context, wg *sync.WaitGroup) {
	first := r.sources.startReading(ctx, wg)
	timer := time.NewTimer(firstReadTimeout)
	defer timer.Stop()
	select {
	case <-first: // a new Node object is complete
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (r *Reporter) takeReportWaiters() []chan error {
	r.mu.Lock()
	defer r.mu.Unlock()
	waiters := r.reportWaiters
	r.reportWaiters = nil
	return waiters
}

// takeUpdateRequest reports whether [Reporter.Changed] was called since the last call of takeUpdateRequest.
func (r *Reporter) takeUpdateRequest() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	requested := r.updateRequested
	r.updateRequested = false
	return requested
}

// applyPodCIDRs calls Options.PodCIDRs if the pod CIDRs of the Node have changed. A failed call is repeated after one update
// period.
func (r *Reporter) applyPodCIDRs(ctx context.Context) {
	cidrs, due := r.loop.duePodCIDRs(time.Now())
	if !due || r.opts.PodCIDRs == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, sourceTimeout)
	defer cancel()
	if err := r.opts.PodCIDRs(ctx, cidrs); err != nil {
		r.opts.Logger.Warn("set pod CIDRs", "node", r.name, "cidrs", cidrs, "error", err)
		callHook(r.opts.Hooks.Error, fmt.Errorf("set pod CIDRs %v: %w", cidrs, err))
		return
	}
	r.loop.appliedCIDRs = cidrs
}
