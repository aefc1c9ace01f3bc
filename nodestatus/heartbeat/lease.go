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

// DefaultLeaseDuration is the default of [LeaseOptions].Duration: nodeLeaseDurationSeconds in the kubelet.
const DefaultLeaseDuration = 40 * time.Second

// heartbeatTimeout is the timeout of each request for a lease or a node status.
const heartbeatTimeout = 10 * time.Second

// LeaseOptions configures a [Lease]. One of NodeName and Reporter is required.
type LeaseOptions struct {
	NodeName string // empty: the node of Reporter
	// Duration is the validity of the lease: whole seconds, at least 4 s. It is renewed after a quarter of Duration. Zero means
	// [DefaultLeaseDuration].
	Duration time.Duration
	// Reporter of the same node supplies the UID of the Node, and pauses renewals while there is no Node. Nil: the UID is read
	// from the API server, and renewals are not paused.
	Reporter *Reporter
	// Event records an event about the node. Nil means the Event function of Reporter, if there is one.
	Event func(nodestatus.Event)

	Rand   func() float64 // in [0,1), for jitter; nil means math/rand/v2
	Logger *slog.Logger   // nil discards
	Hooks  LeaseHooks
}

// LeaseHooks are called by a [Lease]. Each hook may be nil, is called from Run with no lock held, and must not block.
type LeaseHooks struct {
	Renewed func(at time.Time) // the API server accepted the renewal
	Error   func(error)        // a request failed; it is retried
}

// Lease renews the Lease object of a node in the namespace kube-node-lease. Without renewals, the control plane marks the node as
// not ready. It uses a connection of its own to the API server. It never deletes the Lease object.
type Lease struct {
	opts       LeaseOptions
	config     *rest.Config
	leases     kubeapi.Resource[*coordinationv1.Lease]
	nodes      kubeapi.Resource[*corev1.Node]
	client     *kubeapi.Client
	guard      runonce.Guard
	wake       chan struct{} // holds a token after the Node was registered
	duplicates *duplicateName
	wallClock  func() time.Time // renew times; time.Now except in tests

	state        leaseState // used by Run alone, like orphanLogged
	orphanLogged bool       // it was logged that the Node is missing
}

// NewLease returns a Lease for the node named in opts. It sends no request. The error names the missing or invalid field of
// config or opts.
func NewLease(config *rest.Config, opts LeaseOptions) (*Lease, error) {
	if opts.Reporter != nil {
		opts.NodeName = cmp.Or(opts.NodeName, opts.Reporter.name)
		if opts.NodeName != opts.Reporter.name {
			return nil, fmt.Errorf("heartbeat: NewLease: LeaseOptions.NodeName %q: Reporter is that of node %q", opts.NodeName, opts.Reporter.name)
		}
		if opts.Event == nil {
			opts.Event = opts.Reporter.opts.Event
		}
	}
	if opts.NodeName == "" {
		return nil, errors.New("heartbeat: NewLease: LeaseOptions.NodeName: required, unless there is a Reporter")
	}
	if opts.Duration == 0 {
		opts.Duration = DefaultLeaseDuration
	}
	if opts.Duration < 4*time.Second || opts.Duration%time.Second != 0 || opts.Duration > math.MaxInt32*time.Second {
		return nil, fmt.Errorf("heartbeat: NewLease: LeaseOptions.Duration %s: must be whole seconds, at least 4", opts.Duration)
	}
	if opts.Rand == nil {
		opts.Rand = rand.Float64
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	client, err := newHeartbeatClient(config)
	if err != nil {
		return nil, fmt.Errorf("heartbeat: NewLease: %w", err)
	}
	l := &Lease{
		opts: opts, config: config, client: client,
		leases: kubeapi.In(client, kubeapi.Leases, corev1.NamespaceNodeLease), nodes: kubeapi.In(client, kubeapi.Nodes, ""),
		wake: make(chan struct{}, 1), wallClock: time.Now,
		duplicates: &duplicateName{node: opts.NodeName, log: opts.Logger, event: opts.Event},
		state:      leaseState{name: opts.NodeName, seconds: int32(opts.Duration / time.Second)},
	}
	if opts.Reporter != nil {
		l.duplicates = opts.Reporter.duplicates
		opts.Reporter.nodeAppeared.Add(func(...string) { signal(l.wake) })
	}
	l.guard.Require("heartbeat.Lease", opts.Logger, nil)
	return l, nil
}

// newHeartbeatClient returns a client of the API server with its own connection, so that other requests cannot delay
// heartbeats.
func newHeartbeatClient(config *rest.Config) (*kubeapi.Client, error) {
	c, err := kubeapi.New(config, kubeapi.Options{Timeout: heartbeatTimeout})
	if err != nil {
		return nil, err
	}
	return c.HeartbeatClient()
}

// Run renews the lease periodically until ctx ends, then returns nil. Errors of the API server are retried; a second call
// returns an error. Without renewals the control plane marks the node as not ready, so end ctx only after all pods have stopped.
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
		if !l.isNodeAbsent() {
			l.renewOnce(ctx)
		}
		timer.Reset(backoff.Jitter(l.opts.Duration/4, 1, 1+periodJitter, l.opts.Rand()))
	}
}

// isNodeAbsent reports whether the Node was deleted, or not yet created by another client, as far as the Reporter knows. The lease is then not renewed.
func (l *Lease) isNodeAbsent() bool {
	return l.opts.Reporter != nil && l.opts.Reporter.nodeAbsent.Load()
}

// renewOnce renews the lease once. It creates the lease if needed, and gives up after a limited number of attempts.
func (l *Lease) renewOnce(ctx context.Context) {
	step := l.state.startRound(l.wallClock())
	var last error
	failures := 0
	for {
		if step.err != nil {
			last = step.err
			failures++
			callHook(l.opts.Hooks.Error, step.err)
			if failures == 1 {
				l.opts.Logger.Warn("renew lease", "node", l.opts.NodeName, "error", cert.ExplainError(l.config, step.err))
			}
		}
		if step.foreignLease != nil {
			l.duplicates.reportDuplicate(time.Now(), "its lease is renewed by "+holderName(step.foreignLease))
		}
		if step.verb == leaseDone || l.isNodeAbsent() || sleep.For(ctx, step.delay) != nil {
			break
		}
		if step.reconnect {
			l.client.CloseConnections()
		}
		step = l.sendRequest(ctx, step)
	}
	if step.orphan && !l.orphanLogged {
		l.opts.Logger.Info("lease not renewed: Node not found", "node", l.opts.NodeName)
	}
	l.orphanLogged = step.orphan
	switch {
	case step.renewed:
		callHook(l.opts.Hooks.Renewed, l.state.latest.Spec.RenewTime.Time)
		if failures > 0 {
			l.opts.Logger.Info("lease renewed", "node", l.opts.NodeName, "failures", failures)
		}
	case failures > 1 && ctx.Err() == nil:
		l.opts.Logger.Warn("lease not renewed", "node", l.opts.NodeName, "failures", failures, "error", cert.ExplainError(l.config, last))
	}
}

// sendRequest sends the request for step, one step of a lease renewal, to the API server. It returns the next step.
func (l *Lease) sendRequest(ctx context.Context, step leaseStep) leaseStep {
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
		return leaseStep{verb: leaseDone} // a canceled request is not an error
	}
	return l.state.handleResponse(l.wallClock(), lease, uid, err)
}

// nodeUID returns the UID of the Node. It sends a request to the API server only if the Reporter does not have the UID.
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

func holderName(lease *coordinationv1.Lease) string {
	if h := lease.Spec.HolderIdentity; h != nil {
		return fmt.Sprintf("%q", *h)
	}
	return "an unnamed holder"
}
