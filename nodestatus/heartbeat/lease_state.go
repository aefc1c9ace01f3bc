// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package heartbeat

import (
	"errors"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/internal/backoff"
)

const (
	heartbeatTries = 5  // of an update within one round, as the kubelet's
	sentTimes      = 64 // how many of our renew times are remembered: those of ten minutes
)

// ensureBackoff is between attempts to read or create the lease, as component-helpers has it.
var ensureBackoff = backoff.Policy{First: 200 * time.Millisecond, Max: 7 * time.Second} //nolint:gochecknoglobals // never written

// leaseVerb is a request that renewing a lease takes.
type leaseVerb string

const (
	leaseDone    leaseVerb = "done" // none: the round is over
	leaseGet     leaseVerb = "get"
	leaseCreate  leaseVerb = "create"
	leaseUpdate  leaseVerb = "update"
	leaseGetNode leaseVerb = "get node" // whose UID the owner reference takes
)

// leaseStep is what to do next in a round.
type leaseStep struct {
	verb      leaseVerb
	lease     *coordinationv1.Lease // to create or update
	wait      time.Duration         // before the request
	reconnect bool                  // send it on a new connection
	renewed   bool                  // with done: the lease was written
	foreign   *coordinationv1.Lease // what another agent has written to it; nil: nothing
	orphan    bool                  // with done: there is no Node that the lease could belong to
	err       error                 // of the request before, to be told
}

// leaseState is what a series of rounds remembers. A round begins with begin, and each of its requests is followed by answer,
// until a step is done. Neither blocks nor reads a clock.
type leaseState struct {
	name    string // of the node, the lease and its holder
	seconds int32  // how long the lease is valid

	latest *coordinationv1.Lease // as last read or written: what the next update is based on; nil: read it first
	sent   []time.Time           // renew times that were sent, the newest last
	wrote  bool                  // the lease was written since this process has begun

	// Of the round.
	verb     leaseVerb
	base     *coordinationv1.Lease
	uid      types.UID // of the node; empty: not known
	tries    int       // of this series of updates
	ensured  bool      // the lease was read, or created, in this round, so that this series is the last
	conflict bool      // it is read because of a conflict, and the series goes on
	failures int       // to read or create it, in a row
}

// begin begins a round.
func (s *leaseState) begin(now time.Time) leaseStep {
	s.uid, s.tries, s.ensured, s.conflict, s.failures = "", 0, false, false, 0
	if s.latest == nil {
		s.ensured = true
		return s.read(leaseStep{})
	}
	s.base = s.latest
	return s.write(now, leaseStep{})
}

// answer says what follows from the answer to the last step: a lease, or the UID of a node, or an error.
func (s *leaseState) answer(now time.Time, lease *coordinationv1.Lease, uid types.UID, err error) leaseStep {
	switch s.verb {
	case leaseGet:
		return s.gotLease(now, lease, err)
	case leaseCreate:
		if err != nil {
			return s.retryRead(err)
		}
		return s.done(lease)
	case leaseUpdate:
		return s.updated(now, lease, err)
	case leaseGetNode:
		return s.gotNode(now, uid, err)
	default:
		return leaseStep{verb: leaseDone}
	}
}

// gotLease goes on after the lease was read.
func (s *leaseState) gotLease(now time.Time, lease *coordinationv1.Lease, err error) leaseStep {
	if apierrors.IsNotFound(err) {
		s.base = nil
		return s.write(now, leaseStep{})
	}
	if err != nil {
		return s.retryRead(err)
	}
	step := leaseStep{}
	if s.wrote && s.isForeign(lease) {
		step.foreign = lease
	}
	s.failures, s.base, s.latest = 0, lease, lease
	if s.conflict && s.tries == heartbeatTries {
		return s.exhausted(step)
	}
	return s.write(now, step)
}

// updated goes on after an update.
func (s *leaseState) updated(now time.Time, lease *coordinationv1.Lease, err error) leaseStep {
	if err == nil {
		return s.done(lease)
	}
	s.tries++
	step := leaseStep{err: err}
	switch {
	case apierrors.IsConflict(err):
		s.conflict = true
		return s.read(step)
	case apierrors.IsNotFound(err): // the lease is gone
		s.latest = nil
		return s.exhausted(step)
	}
	return s.failed(now, step)
}

// gotNode goes on after the node was read for an owner reference.
func (s *leaseState) gotNode(now time.Time, uid types.UID, err error) leaseStep {
	if err == nil {
		s.uid = uid
		return s.write(now, leaseStep{})
	}
	// What has no owner would never be removed: it waits for the Node, until the next round.
	if apierrors.IsNotFound(err) {
		return leaseStep{verb: leaseDone, orphan: true}
	}
	if s.base == nil {
		return leaseStep{verb: leaseDone, err: err}
	}
	s.tries++
	return s.failed(now, leaseStep{err: err})
}

// failed goes on after an attempt to update that was no conflict.
func (s *leaseState) failed(now time.Time, step leaseStep) leaseStep {
	step.reconnect = s.tries > 1 || !isAnswer(step.err)
	if s.tries == heartbeatTries {
		return s.exhausted(step)
	}
	return s.write(now, step)
}

// exhausted goes on when a series of updates has failed: once, by reading the lease and beginning another one.
func (s *leaseState) exhausted(step leaseStep) leaseStep {
	if s.ensured {
		step.verb, step.reconnect = leaseDone, false
		return step
	}
	s.ensured, s.conflict, s.tries = true, false, 0
	return s.read(step)
}

func (s *leaseState) read(step leaseStep) leaseStep {
	s.verb = leaseGet
	step.verb = leaseGet
	return step
}

// retryRead reads the lease again, after a while.
func (s *leaseState) retryRead(err error) leaseStep {
	s.failures++
	s.uid = "" // it may be another one by then
	return s.read(leaseStep{err: err, wait: ensureBackoff.After(s.failures), reconnect: !isAnswer(err)})
}

// write creates the lease, or updates the one that is there, as soon as it is known who owns it.
func (s *leaseState) write(now time.Time, step leaseStep) leaseStep {
	var lease *coordinationv1.Lease
	s.verb = leaseUpdate
	if s.base != nil {
		lease = s.base.DeepCopy()
	} else {
		s.verb = leaseCreate
		lease = &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: s.name, Namespace: corev1.NamespaceNodeLease},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &s.name},
		}
	}
	if len(lease.OwnerReferences) == 0 {
		if s.uid == "" {
			s.verb = leaseGetNode
			step.verb = leaseGetNode
			return step
		}
		lease.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: s.name, UID: s.uid}}
	}
	renew := metav1.NewMicroTime(now)
	lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = &s.seconds, &renew
	s.sent = append(s.sent[max(0, len(s.sent)-sentTimes+1):], now.Truncate(time.Microsecond))
	step.verb, step.lease = s.verb, lease
	return step
}

// done ends a round in which the lease was written.
func (s *leaseState) done(lease *coordinationv1.Lease) leaseStep {
	s.latest, s.wrote = lease, true
	return leaseStep{verb: leaseDone, renewed: true}
}

// isForeign reports whether somebody else has renewed the lease. A write of ours that was never answered is none.
func (s *leaseState) isForeign(lease *coordinationv1.Lease) bool {
	t := lease.Spec.RenewTime
	return t != nil && !slices.ContainsFunc(s.sent, t.Truncate(time.Microsecond).Equal)
}

// isAnswer reports whether an API server has sent the error, so that the connection works.
func isAnswer(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code != 0
}
