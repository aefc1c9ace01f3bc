// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/internal/backoff"
)

// nodeLease is the lease of a registered node of a Fleet.
type nodeLease struct {
	version   string // resource version of the lease that was sent last; empty: unknown
	exists    bool   // the API server has the lease, so that it must be read if version is unknown
	busy      bool   // a request is waiting or in flight
	failures  int    // failed requests in a row
	nextRenew time.Time
}

// Times of leases, which are those of the kubelet.
const (
	leaseDuration = 40 * time.Second
	renewPeriod   = leaseDuration / 4
	renewJitter   = 0.04
)

// renewTick is the grid of the times of renewals. Nodes of one tick share wake-ups and system calls, which cost more than the renewals: with a thousand
// nodes, the ticks save more than half of the processor time.
const renewTick = 250 * time.Millisecond

var leaseRetry = backoff.Policy{First: 200 * time.Millisecond, Max: 7 * time.Second} //nolint:gochecknoglobals // constant

// planLease starts a renewal of the lease if it is due. It returns when to check again.
func (n *fleetNode) planLease(now time.Time) (next time.Time) {
	l := &n.lease
	switch {
	case l.busy, n.object.uid == "":
		return time.Time{}
	case now.Before(l.nextRenew):
		return l.nextRenew
	}
	l.busy = true
	f, uid, version, exists := n.fleet, n.object.uid, l.version, l.exists
	f.leaseRequests.addRequest(func(ctx context.Context) {
		sent, err := f.renewLease(ctx, n.name, uid, version, exists)
		f.failures.record(f, "renew lease", err)
		n.finish(func(now time.Time) { n.storeLeaseResult(uid, sent, err, now) })
	})
	return time.Time{}
}

// renewLease creates the lease of the node with this name, or renews the version of it. If version is empty and exists true, it reads the
// lease first. uid is that of the Node object. It returns the lease in the response.
func (f *Fleet) renewLease(ctx context.Context, name string, uid types.UID, version string, exists bool) (*coordinationv1.Lease, error) {
	seconds, renewed := int32(leaseDuration/time.Second), metav1.NewMicroTime(f.clock.now())
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: corev1.NamespaceNodeLease, ResourceVersion: version,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: uid}},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: &seconds, RenewTime: &renewed},
	}
	switch {
	case version != "":
		return f.leases.Update(ctx, lease)
	case !exists:
		return f.leases.Create(ctx, lease)
	}
	current, err := f.leases.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	lease.ResourceVersion = current.ResourceVersion
	return f.leases.Update(ctx, lease)
}

// storeLeaseResult stores the result of a renewal: the lease in the response, or err. uid is that of the Node object at the start of the
// renewal.
func (n *fleetNode) storeLeaseResult(uid types.UID, sent *coordinationv1.Lease, err error, now time.Time) {
	l := &n.lease
	l.busy = false
	switch {
	case n.object.uid != uid: // deleted meanwhile; the lease has an owner that does not exist
		*l = nodeLease{exists: true}
	case err == nil:
		*l = nodeLease{version: sent.ResourceVersion, exists: true, nextRenew: now.Add(jitter(renewPeriod, 1, 1+renewJitter)).Truncate(renewTick)}
	default:
		l.failures++
		l.nextRenew = now.Add(jitter(leaseRetry.After(l.failures), 1, 1.5))
		switch {
		case apierrors.IsNotFound(err):
			l.version, l.exists = "", false
		case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
			l.version, l.exists = "", true
			if l.failures == 1 {
				l.nextRenew = now
			}
		}
	}
}
