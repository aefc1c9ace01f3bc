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
	maxHeartbeatTries = 5  // attempts per series of updates, as in the kubelet
	maxSentTimes      = 64 // renew times to remember: those of about ten minutes
)

// ensureBackoff is the back-off between failed attempts to get or create the lease, as in k8s.io/component-helpers.
var ensureBackoff = backoff.Policy{First: 200 * time.Millisecond, Max: 7 * time.Second} //nolint:gochecknoglobals // never written

// leaseVerb is the kind of a request that a renewal of the lease may need.
type leaseVerb string

const (
	leaseDone    leaseVerb = "done" // none: the round is complete
	leaseGet     leaseVerb = "get"
	leaseCreate  leaseVerb = "create"
	leaseUpdate  leaseVerb = "update"
	leaseGetNode leaseVerb = "get node" // for the UID in the owner reference
)

// leaseStep is one step of a renewal: a request that must be sent, or leaseDone with the result of the renewal.
type leaseStep struct {
	verb         leaseVerb
	lease        *coordinationv1.Lease // object to create or update
	delay        time.Duration         // before the request
	reconnect    bool                  // send the request on a new connection
	renewed      bool                  // with leaseDone: the lease was renewed
	foreignLease *coordinationv1.Lease // the lease as another agent has renewed it; nil: none
	orphan       bool                  // with leaseDone: the Node, as owner of the lease, does not exist
	err          error                 // error of the previous request, for the log
}

// leaseState is the state machine of lease renewals. startRound returns the first step of a renewal. The response to each step is
// passed to handleResponse, which returns the next step, until a step is leaseDone. The methods do not block and do not read the
// clock.
type leaseState struct {
	name    string // name of the node, its lease and the lease holder
	seconds int32  // leaseDurationSeconds

	latest         *coordinationv1.Lease // lease as last received: the base of the next update; nil: get it first
	sentRenewTimes []time.Time           // renew times sent by this process, newest last
	written        bool                  // this process has renewed the lease

	// State of the current round.
	verb         leaseVerb
	base         *coordinationv1.Lease
	uid          types.UID // UID of the Node; empty: unknown
	tries        int       // failed attempts in this series of updates
	ensured      bool      // the lease was read or created in this round, so this series is the last
	conflict     bool      // the lease is read after a conflict, and the series continues
	readFailures int       // failures in a row to get or create the lease
}

// startRound starts one renewal of the lease, including its retries, and returns the first request.
func (s *leaseState) startRound(now time.Time) leaseStep {
	s.uid, s.tries, s.ensured, s.conflict, s.readFailures = "", 0, false, false, 0
	if s.latest == nil {
		s.ensured = true
		return s.readLease(leaseStep{})
	}
	s.base = s.latest
	return s.writeLease(now, leaseStep{})
}

// handleResponse returns the next step of the renewal after the response to the current request: the lease, the UID of the Node,
// or an error.
func (s *leaseState) handleResponse(now time.Time, lease *coordinationv1.Lease, uid types.UID, err error) leaseStep {
	switch s.verb {
	case leaseGet:
		return s.handleLease(now, lease, err)
	case leaseCreate:
		if err != nil {
			return s.retryRead(err)
		}
		return s.finishRound(lease)
	case leaseUpdate:
		return s.handleUpdate(now, lease, err)
	case leaseGetNode:
		return s.handleNode(now, uid, err)
	default:
		return leaseStep{verb: leaseDone}
	}
}

// handleLease returns the next step of the renewal after a request to get the lease.
func (s *leaseState) handleLease(now time.Time, lease *coordinationv1.Lease, err error) leaseStep {
	if apierrors.IsNotFound(err) {
		s.base = nil
		return s.writeLease(now, leaseStep{})
	}
	if err != nil {
		return s.retryRead(err)
	}
	step := leaseStep{}
	if s.written && s.isForeign(lease) {
		step.foreignLease = lease
	}
	s.readFailures, s.base, s.latest = 0, lease, lease
	if s.conflict && s.tries == maxHeartbeatTries {
		return s.endSeries(step)
	}
	return s.writeLease(now, step)
}

// handleUpdate returns the next step of the renewal after an update of the lease.
func (s *leaseState) handleUpdate(now time.Time, lease *coordinationv1.Lease, err error) leaseStep {
	if err == nil {
		return s.finishRound(lease)
	}
	s.tries++
	step := leaseStep{err: err}
	switch {
	case apierrors.IsConflict(err):
		s.conflict = true
		return s.readLease(step)
	case apierrors.IsNotFound(err): // the lease was deleted
		s.latest = nil
		return s.endSeries(step)
	}
	return s.retryUpdate(now, step)
}

// handleNode returns the next step of the renewal after a request to get the Node, whose UID the owner reference of the lease
// needs.
func (s *leaseState) handleNode(now time.Time, uid types.UID, err error) leaseStep {
	if err == nil {
		s.uid = uid
		return s.writeLease(now, leaseStep{})
	}
	// A lease without an owner would never be garbage collected, so it waits for the Node until the next round.
	if apierrors.IsNotFound(err) {
		return leaseStep{verb: leaseDone, orphan: true}
	}
	if s.base == nil {
		return leaseStep{verb: leaseDone, err: err}
	}
	s.tries++
	return s.retryUpdate(now, leaseStep{err: err})
}

// retryUpdate returns the next step after an update of the lease has failed, other than by a conflict.
func (s *leaseState) retryUpdate(now time.Time, step leaseStep) leaseStep {
	step.reconnect = s.tries > 1 || !isServerError(step.err)
	if s.tries == maxHeartbeatTries {
		return s.endSeries(step)
	}
	return s.writeLease(now, step)
}

// endSeries returns the next step after all attempts to update the lease have failed: another series, once per renewal, or the
// end.
func (s *leaseState) endSeries(step leaseStep) leaseStep {
	if s.ensured {
		step.verb, step.reconnect = leaseDone, false
		return step
	}
	s.ensured, s.conflict, s.tries = true, false, 0
	return s.readLease(step)
}

func (s *leaseState) readLease(step leaseStep) leaseStep {
	s.verb = leaseGet
	step.verb = leaseGet
	return step
}

// retryRead returns a step that gets the lease after a back-off. err is the error of the last request.
func (s *leaseState) retryRead(err error) leaseStep {
	s.readFailures++
	s.uid = "" // the Node may be recreated during the back-off
	return s.readLease(leaseStep{err: err, delay: ensureBackoff.After(s.readFailures), reconnect: !isServerError(err)})
}

// writeLease returns step with a request to create or update the lease, or to get the Node if its UID is needed as owner.
func (s *leaseState) writeLease(now time.Time, step leaseStep) leaseStep {
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
	s.sentRenewTimes = append(s.sentRenewTimes[max(0, len(s.sentRenewTimes)-maxSentTimes+1):], now.Truncate(time.Microsecond))
	step.verb, step.lease = s.verb, lease
	return step
}

// finishRound ends the renewal. It stores the lease that the API server has accepted, and returns the last step.
func (s *leaseState) finishRound(lease *coordinationv1.Lease) leaseStep {
	s.latest, s.written = lease, true
	return leaseStep{verb: leaseDone, renewed: true}
}

// isForeign reports whether another agent has renewed the lease: this process has not sent its renew time.
func (s *leaseState) isForeign(lease *coordinationv1.Lease) bool {
	t := lease.Spec.RenewTime
	// A renewal by this process is recognized even if its response was lost.
	return t != nil && !slices.ContainsFunc(s.sentRenewTimes, t.Truncate(time.Microsecond).Equal)
}

// isServerError reports whether err is an error response of the API server. In that case the connection works, and need not
// be replaced.
func isServerError(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code != 0
}
