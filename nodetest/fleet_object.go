// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/internal/backoff"
	"github.com/seed81659283/nodeagent/internal/kubeapi"
	"github.com/seed81659283/nodeagent/nodestatus"
)

// nodeObject is the Node object of a node of a Fleet at the API server.
type nodeObject struct {
	server     *corev1.Node // newest version that the API server has sent; nil: the node is not registered
	uid        types.UID    // of server; empty: the node is not registered
	busy       bool         // a request is waiting or in flight
	reportDue  bool         // the status may have changed
	nextReport time.Time    // of an unchanged status
	announced  nodestatus.Announced
	failures   int       // failed requests in a row
	deletions  int       // of the Node by other clients
	notBefore  time.Time // earliest next request
}

// Times of requests for Node objects: nodeStatusReportFrequency of the kubelet, and the waits after failures and deletions.
const nodeReportPeriod = 5 * time.Minute

var (
	registerRetry   = backoff.Policy{First: 100 * time.Millisecond, Max: 7 * time.Second} //nolint:gochecknoglobals // constant
	reregisterRetry = backoff.Policy{First: 10 * time.Second, Max: 5 * time.Minute}       //nolint:gochecknoglobals // constant
)

// facts returns the facts of the node for its Node object.
func (n *fleetNode) facts(now time.Time) nodestatus.Facts {
	s := n.loop.setup
	return nodestatus.Facts{
		Config: s.config, Machine: s.info, Now: now, Announced: n.object.announced, ImagesKnown: true, VolumesKnown: true,
		Host: nodestatus.Host{Interfaces: s.ips, Default: s.ips[0]},
		Runtime: nodestatus.RuntimeState{
			LastReady: now, Observed: true, Name: "critest", Version: "1.0.0",
		},
		Health: nodestatus.Health{
			MemoryPressure: n.hasPressure(corev1.NodeMemoryPressure), DiskPressure: n.hasPressure(corev1.NodeDiskPressure),
			PIDPressure: n.hasPressure(corev1.NodePIDPressure),
		},
	}
}

// receiveObject stores a version of the Node object from the watch. Nil means that another client has deleted it.
func (n *fleetNode) receiveObject(object *corev1.Node, now time.Time) {
	o := &n.object
	switch {
	case object == nil && o.server != nil:
		o.server, o.uid = nil, ""
		o.deletions++
		o.notBefore = now.Add(jitter(reregisterRetry.After(o.deletions), 1, 1.25))
		n.lease = nodeLease{}
	case object != nil && o.server != nil && isNewer(object.ResourceVersion, o.server.ResourceVersion):
		n.storeObject(object)
		o.reportDue = true
	}
}

// storeObject stores a version of the Node object, which decides about the admission of pods.
func (n *fleetNode) storeObject(object *corev1.Node) {
	n.object.server, n.object.uid, n.loop.setup.node = object, object.UID, object
}

// nextStep returns when planObject is due if nothing changes until then. No request must be waiting or in flight.
func (o *nodeObject) nextStep() time.Time {
	if o.notBefore.After(o.nextReport) {
		return o.notBefore
	}
	return o.nextReport
}

// planObject starts the registration of the node or a report of its status, if it is due. It returns when to check again.
func (n *fleetNode) planObject(now time.Time) (next time.Time) {
	o := &n.object
	switch {
	case o.busy:
		return time.Time{}
	case now.Before(o.notBefore):
		return o.notBefore
	case o.server == nil:
		o.busy = true
		n.registerObject(now)
		return time.Time{}
	}
	due := !now.Before(o.nextReport)
	if !due && !o.reportDue {
		return o.nextReport
	}
	o.reportDue = false
	built, events := nodestatus.Build(o.server, n.facts(now))
	if !due && !nodestatus.Changed(o.server, built) {
		return o.nextReport
	}
	patch, err := nodestatus.Patch(o.server, built)
	if err != nil { // the objects are valid
		o.nextReport = now.Add(nodeReportPeriod)
		return o.nextReport
	}
	o.busy = true
	n.sendObject("report node status", events, func(ctx context.Context) (*corev1.Node, error) {
		return kubeapi.In(n.fleet.heartbeat, kubeapi.Nodes, "").Patch(ctx, n.name, types.StrategicMergePatchType, patch, "status")
	})
	return time.Time{}
}

// registerObject creates the Node object with its status, or takes over an existing object.
func (n *fleetNode) registerObject(now time.Time) {
	facts := n.facts(now)
	initial, events := nodestatus.Initial(facts)
	n.sendObject("register node", events, func(ctx context.Context) (*corev1.Node, error) {
		nodes := kubeapi.In(n.fleet.heartbeat, kubeapi.Nodes, "")
		created, err := nodes.Create(ctx, initial)
		if !apierrors.IsAlreadyExists(err) {
			return created, err
		}
		existing, err := nodes.Get(ctx, n.name)
		if err != nil {
			return nil, err
		}
		reconciled, _ := nodestatus.Reconcile(existing, initial)
		built, _ := nodestatus.Build(reconciled, facts)
		patch, err := nodestatus.Patch(existing, built)
		if err != nil {
			return nil, err
		}
		return nodes.Patch(ctx, n.name, types.StrategicMergePatchType, patch, "status")
	})
}

// sendObject adds a request for the Node object to the queue of the Fleet. send returns the object in the response.
func (n *fleetNode) sendObject(action string, events []nodestatus.Event, send func(context.Context) (*corev1.Node, error)) {
	f := n.fleet
	f.nodeRequests.addRequest(func(ctx context.Context) {
		object, err := send(ctx)
		f.failures.record(f, action, err)
		n.finish(func(now time.Time) {
			n.idleSince = now
			n.storeObjectResult(object, events, err, now)
		})
	})
}

// storeObjectResult stores the result of a request for the Node object: the object in the response, or err.
func (n *fleetNode) storeObjectResult(object *corev1.Node, events []nodestatus.Event, err error, now time.Time) {
	o := &n.object
	o.busy = false
	switch {
	case err == nil:
		if n.storeObject(trimNode(object)); n.lease.nextRenew.IsZero() {
			n.lease.nextRenew = now.Add(jitter(renewPeriod, 0, 1)) // nodes that have registered together do not renew their leases together
		}
		o.announced, o.failures, o.notBefore = o.announced.WithEvents(events), 0, time.Time{}
		o.nextReport = now.Add(jitter(nodeReportPeriod, 0.5, 1.5))
		for _, e := range events {
			n.fleet.sendNodeEvent(n, e)
		}
	case apierrors.IsNotFound(err) && o.server != nil: // deleted by another client
		n.receiveObject(nil, now)
	default:
		o.failures++
		o.reportDue = true
		o.notBefore = now.Add(jitter(registerRetry.After(o.failures), 1, 1.5))
	}
}
