// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package heartbeat

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/seed81659283/nodeagent/apiserver/cert"
	"github.com/seed81659283/nodeagent/internal/backoff"
	"github.com/seed81659283/nodeagent/internal/kubeapi"
	"github.com/seed81659283/nodeagent/internal/runonce"
	"github.com/seed81659283/nodeagent/internal/sleep"
	"github.com/seed81659283/nodeagent/nodestatus"
)

// DefaultLeaseDuration is how long a lease is valid where nobody says anything else: nodeLeaseDurationSeconds of the kubelet.
const DefaultLeaseDuration = 40 * time.Second

// heartbeatTimeout bounds one request of a Lease or of a status.
const heartbeatTimeout = 10 * time.Second

// LeaseOptions tune a [Lease]. NodeName, or Reporter, is required.
type LeaseOptions struct {
	NodeName string // empty: that of Reporter
	// Duration is for how long the lease is valid after it was renewed, which happens at a quarter of it; whole seconds, and 4 s at
	// least. Zero means [DefaultLeaseDuration].
	Duration time.Duration
	// Reporter of the same node: the lease rests while the Node is deleted, and takes the Node's UID from it. Nil: it asks the API
	// server for the UID, and does not know when the Node is deleted.
	Reporter *Reporter
	// Event gets what is to be told about the node. Nil: that of Reporter, if there is one.
	Event func(nodestatus.Event)

	Rand   func() float64 // in [0,1), for jitter; nil means math/rand/v2
	Logger *slog.Logger   // nil discards
	Hooks  LeaseHooks
}

// LeaseHooks hear of what a [Lease] does. Each may be nil, is called from Run with no lock held, and must not block.
type LeaseHooks struct {
	Renewed func(at time.Time) // the API server has the lease
	Error   func(error)        // a request has failed; it is tried again
}

// Lease renews the lease of a node in kube-node-lease, by which the cluster knows that the node is alive. It has a connection of its
// own. It never deletes the lease.
type Lease struct {
	opts   LeaseOptions
	config *rest.Config
	leases kubeapi.Resource[*coordinationv1.Lease]
	nodes  kubeapi.Resource[*corev1.Node]
	client *kubeapi.Client
	guard  runonce.Guard
	wake   chan struct{} // holds a token when the Node has appeared
	same   *namesake
	wall   func() time.Time // what renew times are stamped with; only tests have another than time.Now

	state  leaseState // Run's alone, like what follows
	orphan bool       // it was said that there is no Node
}

// NewLease returns a lease, and sends nothing. The error says what of config or o is missing or invalid.
func NewLease(config *rest.Config, o LeaseOptions) (*Lease, error) {
	if o.Reporter != nil {
		o.NodeName = cmp.Or(o.NodeName, o.Reporter.name)
		if o.NodeName != o.Reporter.name {
			return nil, fmt.Errorf("heartbeat: NewLease: LeaseOptions.NodeName %q: Reporter is that of node %q", o.NodeName, o.Reporter.name)
		}
		if o.Event == nil {
			o.Event = o.Reporter.opts.Event
		}
	}
	if o.NodeName == "" {
		return nil, errors.New("heartbeat: NewLease: LeaseOptions.NodeName: required, unless there is a Reporter")
	}
	if o.Duration == 0 {
		o.Duration = DefaultLeaseDuration
	}
	if o.Duration < 4*time.Second || o.Duration%time.Second != 0 || o.Duration > math.MaxInt32*time.Second {
		return nil, fmt.Errorf("heartbeat: NewLease: LeaseOptions.Duration %s: must be whole seconds, at least 4", o.Duration)
	}
	if o.Rand == nil {
		o.Rand = rand.Float64
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	client, err := heartbeats(config)
	if err != nil {
		return nil, fmt.Errorf("heartbeat: NewLease: %w", err)
	}
	l := &Lease{
		opts: o, config: config, client: client,
		leases: kubeapi.In(client, kubeapi.Leases, corev1.NamespaceNodeLease), nodes: kubeapi.In(client, kubeapi.Nodes, ""),
		wake: make(chan struct{}, 1), wall: time.Now,
		same:  &namesake{node: o.NodeName, log: o.Logger, event: o.Event},
		state: leaseState{name: o.NodeName, seconds: int32(o.Duration / time.Second)},
	}
	if o.Reporter != nil {
		l.same = o.Reporter.same
		o.Reporter.appeared.Add(func(...string) { poke(l.wake) })
	}
	l.guard.Require("heartbeat.Lease", o.Logger, nil)
	return l, nil
}

// heartbeats returns a client with a connection of its own.
func heartbeats(config *rest.Config) (*kubeapi.Client, error) {
	c, err := kubeapi.New(config, kubeapi.Options{Timeout: heartbeatTimeout})
	if err != nil {
		return nil, err
	}
	return c.HeartbeatClient()
}

// Run renews the lease until ctx ends, then returns nil. No error of the API server ends it. A second call returns an error at
// once. An agent that stops pods for a shutdown goes on with Run, or the cluster takes the node for dead.
func (l *Lease) Run(ctx context.Context) error {
	if err := l.guard.Begin(); err != nil {
		return fmt.Errorf("heartbeat.Lease: %w", err)
	}
	defer l.guard.End()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-l.wake:
		}
		if !l.resting() {
			l.round(ctx)
		}
		timer.Reset(backoff.Jitter(l.opts.Duration/4, 1, 1+periodSpan, l.opts.Rand()))
	}
}

// resting reports whether the Node is known to be deleted.
func (l *Lease) resting() bool { return l.opts.Reporter != nil && l.opts.Reporter.gone.Load() }

// round renews the lease once.
func (l *Lease) round(ctx context.Context) {
	step := l.state.begin(l.wall())
	var last error
	failures := 0
	for {
		if step.err != nil {
			last = step.err
			failures++
			call(l.opts.Hooks.Error, step.err)
			if failures == 1 {
				l.opts.Logger.Warn("renew lease", "node", l.opts.NodeName, "error", cert.ExplainError(l.config, step.err))
			}
		}
		if step.foreign != nil {
			l.same.found(time.Now(), "its lease is renewed by "+holder(step.foreign))
		}
		if step.verb == leaseDone || l.resting() || sleep.For(ctx, step.wait) != nil {
			break
		}
		if step.reconnect {
			l.client.CloseConnections()
		}
		step = l.send(ctx, step)
	}
	if step.orphan && !l.orphan {
		l.opts.Logger.Info("the lease waits for the Node", "node", l.opts.NodeName)
	}
	l.orphan = step.orphan
	switch {
	case step.renewed:
		call(l.opts.Hooks.Renewed, l.state.latest.Spec.RenewTime.Time)
		if failures > 0 {
			l.opts.Logger.Info("lease renewed", "node", l.opts.NodeName, "failures", failures)
		}
	case failures > 1 && ctx.Err() == nil:
		l.opts.Logger.Warn("lease not renewed", "node", l.opts.NodeName, "failures", failures, "error", cert.ExplainError(l.config, last))
	}
}

// send sends the request of a step, and returns the next one.
func (l *Lease) send(ctx context.Context, step leaseStep) leaseStep {
	var lease *coordinationv1.Lease
	var uid types.UID
	var err error
	switch step.verb {
	case leaseGet:
		lease, err = l.leases.Get(ctx, l.opts.NodeName)
	case leaseCreate:
		lease, err = l.leases.Create(ctx, step.lease)
	case leaseUpdate:
		lease, err = l.leases.Update(ctx, step.lease)
	case leaseGetNode:
		uid, err = l.nodeUID(ctx)
	}
	if ctx.Err() != nil {
		return leaseStep{verb: leaseDone} // what was cut off is no error
	}
	return l.state.answer(l.wall(), lease, uid, err)
}

// nodeUID returns the UID of the Node.
func (l *Lease) nodeUID(ctx context.Context) (types.UID, error) {
	if r := l.opts.Reporter; r != nil {
		if uid := r.Node().UID; uid != "" {
			return uid, nil
		}
	}
	node, err := l.nodes.Get(ctx, l.opts.NodeName)
	if err != nil {
		return "", err
	}
	return node.UID, nil
}

func holder(lease *coordinationv1.Lease) string {
	if h := lease.Spec.HolderIdentity; h != nil {
		return fmt.Sprintf("%q", *h)
	}
	return "somebody"
}
