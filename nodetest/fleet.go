// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
	"github.com/seed81659283/nodeagent/apiserver/cert"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/kubeapi"
	"github.com/seed81659283/nodeagent/internal/memimage"
	"github.com/seed81659283/nodeagent/internal/runonce"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
)

// FleetOptions configures a [Fleet]. Nodes, and either Kubeconfig or API are required.
type FleetOptions struct {
	// Kubeconfig is the file of a real API server. Its user may read all pods and nodes, and write the nodes of the Fleet, their leases,
	// pods and events, as an administrator. Empty: API.
	Kubeconfig string
	// API is the API server in memory. Nil: Kubeconfig.
	API *apiservertest.Server
	// Nodes has the options of each node. They are those of a [Loop], with different names. LogLimit is ignored: a Fleet has no logs.
	Nodes []Options
	// Events selects the events of pods and nodes that are sent to the API server. Zero: EventsWarning.
	Events EventSelection
	// Parallel is the largest number of requests for pods in flight. Requests for nodes and for leases, and events have as many each.
	// Zero: 16.
	Parallel int
	// EventRecorded is called for each event of a pod, also if it is not sent. Calls of different nodes are concurrent. It must not
	// block. Nil: no hook.
	EventRecorded func(node string, pod cri.PodIdentity, e podevents.Event)
	// Settled is called when most nodes have become idle after changes, and need little memory from then on: the program may return the rest to
	// the operating system. It is called again after changes of at least a tenth of the nodes. Nil: no hook.
	Settled func()
	// Logger gets failed requests: the first of several in a row. Nil: no logs.
	Logger *slog.Logger
}

// EventSelection selects the events that a [Fleet] sends. A pod has five Normal events until it runs, with which the API server is busy
// for longer than with its status.
type EventSelection int

// Selections of events.
const (
	EventsWarning EventSelection = iota // those of type Warning, for example of evictions, failed probes and back-off
	EventsAll                           // all, as a kubelet sends
	EventsNone
)

// Fleet is many nodes of one API server in real time. Each is a [Loop], whose events a few goroutines run when they are due. The nodes share
// one watch of pods and one of nodes. An idle node costs the renewals of its lease: while all its pods have settled and none has probes or
// usage curves, the memory of the node is packed into a few kilobytes. Renewals that are due in the same quarter of a second are sent together.
// Create a Fleet with [NewFleet].
//
// Nodes register themselves, renew their leases, report their pressure, run the pods that are bound to them, send the statuses of these pods and
// remove them after their deletion. A deleted Node is registered again. Everything else is as in a Loop, with two exceptions: lifecycle hooks
// succeed at once, and ephemeral containers are ignored. The environment of containers is ignored, resources are not changed in place, and mirror
// pods are left alone. The nodes have no HTTP API: logs and exec fail.
//
// The clock of a Fleet starts at the wall clock and does not follow its jumps: after a jump, the times in leases and statuses differ from the
// wall clock by the jump. A Fleet does not detect another Fleet or a kubelet that runs nodes of the same names: both renew the same leases and
// send different statuses of the same pods.
type Fleet struct {
	options FleetOptions
	logger  *slog.Logger
	guard   runonce.Guard
	nodes   map[string]*fleetNode
	clock   fleetClock
	wakes   wakeQueue

	podRequests, nodeRequests, leaseRequests, eventRequests *requestQueue

	client    *kubeapi.Client // of watches and pods
	heartbeat *kubeapi.Client // of nodes and leases, with connections of its own
	pods      *kubeapi.Table[*corev1.Pod, *podRow]
	apiNodes  *kubeapi.Table[*corev1.Node, *nodeRow]
	leases    kubeapi.Resource[*coordinationv1.Lease]
	routes    map[string]podRoute // by key of the pod; used by the goroutine of the watch of pods only
	specs     specSharer
	events    fleetEvents
	failures  failureLog

	packer    *memimage.Packer
	packAfter time.Duration // how long a node must be idle until its memory is packed
	settled   settledNodes
}

// fleetClock is the time of a Fleet: the wall clock at its creation plus the time that has passed. It does not jump.
type fleetClock struct{ began, wall time.Time }

// now returns the current time of the Fleet.
func (c *fleetClock) now() time.Time { return c.wall.Add(time.Since(c.began)) }

// Limits of a Fleet.
const (
	defaultParallel = 16
	podsPerNode     = 1000             // pods of the cluster per node of the fleet that are kept in memory, at least maxFleetPods in total
	maxFleetPods    = 100_000          // as kubeapi
	maxFleetNodes   = 100_000          // Node objects of the cluster
	requestTimeout  = 10 * time.Second // of each request
)

// NewFleet returns a Fleet whose nodes do nothing until [Fleet.Run]. It sends no request. The error names the invalid option.
func NewFleet(ctx context.Context, options FleetOptions) (*Fleet, error) {
	if len(options.Nodes) == 0 || (options.Kubeconfig == "") == (options.API == nil) {
		return nil, errors.New("nodetest.NewFleet: FleetOptions.Nodes, and either Kubeconfig or API are required")
	}
	if options.Parallel < 0 {
		return nil, fmt.Errorf("nodetest.NewFleet: FleetOptions.Parallel %d is negative", options.Parallel)
	}
	if options.Parallel == 0 {
		options.Parallel = defaultParallel
	}
	f := &Fleet{
		options: options, logger: options.Logger, nodes: map[string]*fleetNode{}, routes: map[string]podRoute{}, packer: newNodePacker(), packAfter: packAfter,
	}
	if f.logger == nil {
		f.logger = slog.New(slog.DiscardHandler)
	}
	f.options.Nodes = nil // each node has its own
	f.clock.began = time.Now()
	f.clock.wall = f.clock.began.Round(0)
	f.wakes.signal = make(chan struct{}, 1)
	for _, queue := range []**requestQueue{&f.podRequests, &f.nodeRequests, &f.leaseRequests, &f.eventRequests} {
		*queue = newRequestQueue()
	}
	if err := f.connect(len(options.Nodes)); err != nil {
		return nil, fmt.Errorf("nodetest.NewFleet: %w", err)
	}
	sharer := &setupSharer{}
	for i := range options.Nodes {
		n, err := f.newNode(ctx, options.Nodes[i], sharer)
		if err != nil {
			return nil, err
		}
		if f.nodes[n.name] != nil {
			return nil, fmt.Errorf("nodetest.NewFleet: FleetOptions.Nodes: two nodes have the name %q", n.name)
		}
		f.nodes[n.name] = n
	}
	return f, nil
}

// newClient returns a client of the API server in the options.
func (f *Fleet) newClient() (*kubeapi.Client, error) {
	if f.options.API != nil {
		return kubeapi.New(f.options.API.Config(), kubeapi.Options{Timeout: requestTimeout})
	}
	config, err := cert.LoadKubeconfig(f.options.Kubeconfig)
	if err != nil {
		return nil, err
	}
	return kubeapi.New(config, kubeapi.Options{Timeout: requestTimeout})
}

// connect creates the clients and the tables of the Fleet.
func (f *Fleet) connect(nodes int) (err error) {
	if f.client, err = f.newClient(); err != nil {
		return err
	}
	if f.heartbeat, err = f.client.HeartbeatClient(); err != nil {
		return err
	}
	if f.client, err = f.client.WithBudget(-1, 0); err != nil {
		return err
	}
	f.pods = kubeapi.NewTable(kubeapi.In(f.client, kubeapi.Pods, ""), kubeapi.TableOptions[*corev1.Pod, *podRow]{
		FieldSelector: "spec.nodeName!=", Transform: f.newPodRow, Changed: f.routePods, Failed: f.failures.recorder(f, "watch pods"),
		MaxObjects: max(maxFleetPods, podsPerNode*nodes),
	})
	f.apiNodes = kubeapi.NewTable(kubeapi.In(f.client, kubeapi.Nodes, ""), kubeapi.TableOptions[*corev1.Node, *nodeRow]{
		Transform: f.newNodeRow, Changed: f.routeNodes, Failed: f.failures.recorder(f, "watch nodes"), MaxObjects: maxFleetNodes,
	})
	f.leases = kubeapi.In(f.heartbeat, kubeapi.Leases, corev1.NamespaceNodeLease)
	return nil
}

// Run runs the nodes until ctx ends, and returns nil then. Errors of the API server are retried; a second call returns an error. The Node
// objects and the pods stay at the API server. Pods are started anew by the next Fleet.
func (f *Fleet) Run(ctx context.Context) error {
	if err := f.guard.Begin(); err != nil {
		return fmt.Errorf("nodetest.Fleet: %w", err)
	}
	defer f.guard.End()
	var group sync.WaitGroup
	defer group.Wait()
	now := f.clock.now()
	for _, n := range f.nodes {
		n.loop.ctx = ctx
		f.wakes.wakeAt(n, now)
	}
	queues := []*requestQueue{f.podRequests, f.nodeRequests, f.leaseRequests, f.eventRequests}
	for _, queue := range queues {
		for range f.options.Parallel {
			group.Go(func() { queue.run(ctx) })
		}
	}
	for range min(runtime.GOMAXPROCS(0), len(f.nodes)) {
		group.Go(func() { f.runNodes(ctx) })
	}
	group.Go(func() { _ = f.apiNodes.Run(ctx) }) // nil: it is called once
	group.Go(func() { _ = f.pods.Run(ctx) })
	<-ctx.Done()
	for _, queue := range queues {
		queue.close()
	}
	return nil
}

// runNodes runs the events of nodes when they are due, until ctx ends.
func (f *Fleet) runNodes(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		now := f.clock.now()
		n, wait := f.wakes.next(now)
		if ctx.Err() != nil {
			return
		}
		if n != nil {
			if next := n.step(now); !next.IsZero() {
				f.wakes.wakeAt(n, next)
			}
			continue
		}
		if f.settled.takeReport(len(f.nodes)) && f.options.Settled != nil {
			f.options.Settled()
			continue
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-f.wakes.signal:
		}
	}
}
