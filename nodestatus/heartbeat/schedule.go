// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package heartbeat

import (
	"time"

	"github.com/seed81659283/nodeagent/internal/backoff"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

const (
	minRequestGap = time.Second            // least time between two updates that Changed requests
	fastPeriod    = 100 * time.Millisecond // time between two fast updates
	fastTimeout   = 120 * time.Second      // fast updates stop after this time even if the node is not ready
	periodJitter  = 0.04                   // largest fraction of updatePeriod added at random, as in the kubelet
)

// Back-off after a failed registration of the Node, and before the registration of a deleted Node.
var (
	registerBackoff   = backoff.Policy{First: 100 * time.Millisecond, Max: 7 * time.Second} //nolint:gochecknoglobals // never written
	reregisterBackoff = backoff.Policy{First: 10 * time.Second, Max: 5 * time.Minute}       //nolint:gochecknoglobals // never written
)

// schedule decides when a Reporter computes the node status from its sources (an update), when it reports an unchanged status,
// and when it registers the Node. It does not read the clock: callers pass the time, which must be monotonic.
type schedule struct {
	updatePeriod time.Duration  // between full updates, before jitter
	reportPeriod time.Duration  // between reports of an unchanged status
	random       func() float64 // in [0,1)

	nextUpdate  time.Time // next periodic full update
	requested   bool      // a full update was requested and has not started
	lastRequest time.Time // start of the last requested update; zero: none yet

	lastReport   time.Time     // when the API server last accepted a status; zero: never
	reportJitter time.Duration // added to reportPeriod for the next report; may be negative

	fastUntil time.Time // when fast updates stop; zero: they have stopped
	nextFast  time.Time // next fast update

	registerFailures int       // failed registrations in a row
	nextRegister     time.Time // earliest next registration; zero: now
}

// start makes a full update of the node status due, and starts the fast updates, which only check whether the node is ready.
func (s *schedule) start(now time.Time) {
	s.nextUpdate, s.nextFast, s.fastUntil = now, now, now.Add(fastTimeout)
}

// requestUpdate requests a full update. It is due at once, or minRequestGap after the last requested update.
func (s *schedule) requestUpdate() { s.requested = true }

// updateDue reports whether an update of the node status is due, and whether it is full. A fast update only checks whether the
// node is ready.
func (s *schedule) updateDue(now time.Time) (due, full bool) {
	full = !now.Before(s.nextUpdate) || s.requested && !now.Before(s.requestTime())
	return full || !s.fastUntil.IsZero() && !now.Before(s.nextFast), full
}

func (s *schedule) requestTime() time.Time { return s.lastRequest.Add(minRequestGap) }

// updateStarted records that an update starts now. If this is the requested update, it clears the request.
func (s *schedule) updateStarted(now time.Time) {
	if s.requested && !now.Before(s.requestTime()) {
		s.requested, s.lastRequest = false, now
	}
}

// updateCompleted sets the times of the next updates, after a full or fast update or a report.
func (s *schedule) updateCompleted(now time.Time, full bool) {
	if full {
		s.nextUpdate = now.Add(backoff.Jitter(s.updatePeriod, 1, 1+periodJitter, s.random()))
	}
	s.nextFast = now.Add(fastPeriod)
	if !now.Before(s.fastUntil) {
		s.stopFastUpdates()
	}
}

// stopFastUpdates stops the fast updates. It is called when the API server knows that the node is ready.
func (s *schedule) stopFastUpdates() { s.fastUntil = time.Time{} }

// reportDue reports whether the report period has passed. The status must then be sent even if it has not changed.
func (s *schedule) reportDue(now time.Time) bool {
	return s.lastReport.IsZero() || now.Sub(s.lastReport) >= s.reportPeriod+s.reportJitter
}

// reportStarted changes the next report period at random if the status has changed. Nodes that change together then report at
// different times. Source: tryUpdateNodeStatus in pkg/kubelet/kubelet_node_status.go.
func (s *schedule) reportStarted(changed bool) {
	s.reportJitter = 0
	if changed || s.lastReport.IsZero() {
		s.reportJitter = backoff.Jitter(s.reportPeriod, -0.5, 0.5, s.random())
	}
}

// reportAccepted records that the API server has accepted a status now.
func (s *schedule) reportAccepted(now time.Time) { s.lastReport = now }

// canRegister reports whether the Node may be registered now. A back-off must pass after a failed registration, and after
// the Node was deleted.
func (s *schedule) canRegister(now time.Time) bool { return !now.Before(s.nextRegister) }

// registerAttempted records an attempt to register the Node. If err is not nil, a back-off starts.
func (s *schedule) registerAttempted(now time.Time, err error) {
	if err == nil {
		s.registerFailures, s.nextRegister = 0, time.Time{}
		return
	}
	s.registerFailures++
	s.nextRegister = now.Add(registerBackoff.After(s.registerFailures))
}

// delayReregistration sets the time at which a deleted Node is registered again. deletions is the number of consecutive
// deletions, with which the delay grows.
func (s *schedule) delayReregistration(now time.Time, deletions int) {
	s.nextRegister = now.Add(backoff.Jitter(reregisterBackoff.After(deletions), 1, 1.5, s.random()))
}

// nextWake returns the time of the next update of the node status, or of the next registration if one is awaited.
func (s *schedule) nextWake(awaitsRegistration bool) time.Time {
	wake := s.nextUpdate
	if s.requested {
		wake = sleep.Earlier(wake, s.requestTime())
	}
	if !s.fastUntil.IsZero() {
		wake = sleep.Earlier(wake, s.nextFast)
	}
	if awaitsRegistration {
		wake = sleep.Earlier(wake, s.nextRegister)
	}
	return wake
}
