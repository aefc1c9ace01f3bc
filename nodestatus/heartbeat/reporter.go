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

// What a [Reporter] does where its options say nothing: nodeStatusUpdateFrequency and nodeStatusReportFrequency of the kubelet.
const (
	DefaultUpdateFrequency = 10 * time.Second
	DefaultReportFrequency = 5 * time.Minute
)

// Hosts finds out the addresses of a machine. [Lookup] is one.
type Hosts interface {
	Host(ctx context.Context, c *nodestatus.Config) nodestatus.Host
}

// ReporterOptions tune a [Reporter]. Config.Name is required; a source that is nil says nothing, except as its comment tells. Sources are
// called by several goroutines.
type ReporterOptions struct {
	Config nodestatus.Config

	Conditions nodestatus.Conditions
	Capacity   nodestatus.Capacity
	Hosts      Hosts
	Images     nodestatus.Images
	Devices    nodestatus.DeviceCapacity
	Volumes    nodestatus.Volumes
	Runtime    nodestatus.Runtime // nil is one that is always ready

	// UpdateFrequency is the time from one look at the node to the next. Zero means [DefaultUpdateFrequency].
	UpdateFrequency time.Duration
	// ReportFrequency is the time after which a status is sent that has not changed. Zero means UpdateFrequency where that is given, and
	// else [DefaultReportFrequency].
	ReportFrequency time.Duration
	// Reregister makes a new Node when somebody has deleted it, after a back-off of 10 s to 5 min. Without it the status and the lease rest
	// until somebody makes one.
	Reregister bool

	// ResetExtendedResources sets the extended resources of a Node that is there already to zero when it is registered: for a machine
	// whose device plugins are not known any more.
	ResetExtendedResources bool

	// PodCIDRs is told which addresses pods of the node get, also at the start. What fails is tried again. It has 10 s. Nil: it is not.
	PodCIDRs func(ctx context.Context, cidrs []string) error
	// Event gets what is to be told about the node, from Run's goroutine. It must not block. Nil discards it.
	Event func(nodestatus.Event)

	Rand   func() float64 // in [0,1), for jitter; nil means math/rand/v2
	Logger *slog.Logger   // nil discards
	Hooks  ReporterHooks
}

// ReporterHooks hear of what a [Reporter] does. Each may be nil, is called from Run with no lock held, and must not block. A Node that they
// get is shared, and must not be changed.
type ReporterHooks struct {
	Registered   func(node *corev1.Node)                  // the API server has the Node: after each registration
	Reported     func(node *corev1.Node)                  // the API server has taken a status
	VolumesInUse func(reported []corev1.UniqueVolumeName) // what the API server knows to be in use, after each report and the first look
	Deleted      func()                                   // somebody has deleted the Node
	Error        func(error)                              // a request or a source has failed; it is tried again
}

// Reporter registers a node and keeps the status of its Node object true. Its methods may be called from any goroutine, before, during and after Run.
type Reporter struct {
	opts   ReporterOptions
	name   string
	config *rest.Config
	client *kubeapi.Client                // of heartbeats
	nodes  kubeapi.Resource[*corev1.Node] // by it
	store  *kubeapi.Store[*corev1.Node]   // the Node, by a watch on another connection
	gather *gatherer
	same   *namesake
	guard  runonce.Guard
	wall   func() time.Time // what a status is stamped with; only tests have another than time.Now

	node     atomic.Pointer[corev1.Node]
	gone     atomic.Bool   // the Node is deleted
	wake     chan struct{} // holds a token when there is something to do
	changed  listener.List // of Notify
	appeared listener.List // called when the Node is there

	known      sync.Once     // closes registered
	registered chan struct{} // closed when the API server has had the Node

	mu    sync.Mutex // guards what follows
	asked bool       // Changed was called
	waits []chan error
	ended chan struct{} // closed at the end of Run

	loop loop // Run's alone
}

// NewReporter returns a reporter, and sends nothing. The error says what of config or o is missing or invalid.
func NewReporter(config *rest.Config, o ReporterOptions) (*Reporter, error) {
	if o.Config.Name == "" {
		return nil, errors.New("heartbeat: NewReporter: ReporterOptions.Config.Name: required: see nodestatus.NodeName")
	}
	if o.UpdateFrequency < 0 || o.ReportFrequency < 0 {
		return nil, fmt.Errorf("heartbeat: NewReporter: ReporterOptions: UpdateFrequency %s, ReportFrequency %s: must not be negative",
			o.UpdateFrequency, o.ReportFrequency)
	}
	if o.ReportFrequency == 0 {
		o.ReportFrequency = DefaultReportFrequency
		if o.UpdateFrequency != 0 {
			o.ReportFrequency = o.UpdateFrequency
		}
	}
	if o.UpdateFrequency == 0 {
		o.UpdateFrequency = DefaultUpdateFrequency
	}
	if o.Rand == nil {
		o.Rand = rand.Float64
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	watching, err := kubeapi.New(config, kubeapi.Options{Logger: o.Logger})
	if err != nil {
		return nil, fmt.Errorf("heartbeat: NewReporter: %w", err)
	}
	client, err := heartbeats(config)
	if err != nil {
		return nil, fmt.Errorf("heartbeat: NewReporter: %w", err)
	}
	r := &Reporter{
		opts: o, name: o.Config.Name, config: config, client: client, nodes: kubeapi.In(client, kubeapi.Nodes, ""),
		wake: make(chan struct{}, 1), wall: time.Now, ended: make(chan struct{}), registered: make(chan struct{}),
		same: &namesake{node: o.Config.Name, log: o.Logger, event: o.Event},
	}
	r.gather = &gatherer{opts: &r.opts, changed: r.Changed}
	r.store = kubeapi.NewStore(kubeapi.In(watching, kubeapi.Nodes, ""), kubeapi.StoreOptions[*corev1.Node]{
		FieldSelector: "metadata.name=" + r.name, MaxObjects: 1, Rand: o.Rand,
		Relist:  24 * time.Hour, // what a watch loses is in the answer to each report
		Changed: func(...string) { poke(r.wake) },
	})
	r.loop = newLoop(r)
	node, _ := nodestatus.Initial(r.gather.current(r.wall()))
	r.node.Store(node)
	r.guard.Require("heartbeat.Reporter", o.Logger, nil)
	return r, nil
}

// Node returns what is known of the node: the metadata and the specification that the API server has, with the status as it was last
// found out. It is never nil, and has no UID before the API server knows it. It is shared, and must not be changed. It never waits.
func (r *Reporter) Node() *corev1.Node { return r.node.Load() }

// WaitRegistered waits until [Reporter.Node] is what the API server has, with the labels that pods are admitted by, or until ctx ends, whose
// error it returns. Once the Node was there it returns at once. It is what apiserver.Options.WaitForNode wants.
func (r *Reporter) WaitRegistered(ctx context.Context) error {
	select {
	case <-r.registered:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for node %s: %w", r.name, errors.Join(context.Cause(ctx), r.guard.Err()))
	}
}

// Changed says that something has changed that the status of the node tells, such as a condition. It is looked at, and sent, at once, or
// a second after the last time. It returns at once.
func (r *Reporter) Changed() {
	r.mu.Lock()
	r.asked = true
	r.mu.Unlock()
	poke(r.wake)
}

// Report looks at the node, and returns when the API server has the status, or the error of sending it, or that of ctx. A
// status that has not changed is not sent.
func (r *Reporter) Report(ctx context.Context) error {
	result := make(chan error, 1)
	r.mu.Lock()
	r.waits = append(r.waits, result)
	r.mu.Unlock()
	poke(r.wake)
	select {
	case err := <-result:
		return err
	case <-r.ended:
		return fmt.Errorf("report status of node %s: Reporter.Run has ended", r.name)
	case <-ctx.Done():
		return fmt.Errorf("report status of node %s: %w", r.name, errors.Join(ctx.Err(), r.guard.Err()))
	}
}

// Notify has fn called after [Reporter.Node] has changed in more than when conditions were last looked at, from Run's goroutine with no lock
// held. It may be called more than once, and must not block. It panics if fn is nil.
func (r *Reporter) Notify(fn func()) {
	if fn == nil {
		panic("heartbeat: Reporter.Notify: nil function")
	}
	r.changed.Add(func(...string) { fn() })
}

// Run registers the node and reports its status until ctx ends, then returns nil. No error of the API server ends it. A second call returns
// an error at once. The Node object stays.
func (r *Reporter) Run(ctx context.Context) error {
	if err := r.guard.Begin(); err != nil {
		return fmt.Errorf("heartbeat.Reporter: %w", err)
	}
	defer r.guard.End()
	defer close(r.ended)
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.awaitFacts(ctx, &wg)
	wg.Go(func() { _ = r.store.Run(ctx) }) // its errors are told by the requests
	r.loop.begin(time.Now())
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-r.wake:
		case done := <-r.loop.done:
			r.loop.finish(done, time.Now())
		}
		if start := r.loop.step(time.Now()); start != nil {
			wg.Go(func() { r.loop.done <- start(ctx) })
		}
		r.applyPodCIDRs(ctx)
		timer.Reset(time.Until(r.loop.next()))
	}
}

// awaitFacts waits until the sources have been read once, so that the Node is not made without them, but not for long.
func (r *Reporter) awaitFacts(ctx context.Context, wg *sync.WaitGroup) {
	first := r.gather.start(ctx, wg)
	timer := time.NewTimer(firstFacts)
	defer timer.Stop()
	select {
	case <-first:
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (r *Reporter) takeWaits() []chan error {
	r.mu.Lock()
	defer r.mu.Unlock()
	waits := r.waits
	r.waits = nil
	return waits
}

// takeAsked reports whether Changed was called since the last time.
func (r *Reporter) takeAsked() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	asked := r.asked
	r.asked = false
	return asked
}

// applyPodCIDRs hands on the addresses of pods when they have changed.
func (r *Reporter) applyPodCIDRs(ctx context.Context) {
	cidrs, due := r.loop.podCIDRs(time.Now())
	if !due || r.opts.PodCIDRs == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, sourceTimeout)
	defer cancel()
	if err := r.opts.PodCIDRs(ctx, cidrs); err != nil {
		r.opts.Logger.Warn("set pod CIDRs", "node", r.name, "cidrs", cidrs, "error", err)
		call(r.opts.Hooks.Error, fmt.Errorf("set pod CIDRs %v: %w", cidrs, err))
		return
	}
	r.loop.appliedCIDRs = cidrs
}
