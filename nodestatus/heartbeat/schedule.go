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

// start makes a full update due at now. It also starts the fast updates, which only check whether the node has become ready.
func (s *schedule) start(now time.Time) {
	s.nextUpdate, s.nextFast, s.fastUntil = now, now, now.Add(fastTimeout)
}

// requestUpdate requests a full update. It becomes due at once, or minRequestGap after the previous requested update.
func (s *schedule) requestUpdate() { s.requested = true }

// updateDue reports whether an update of the node status is due at now. full is true if all changes must be reported, false if
// only readiness is checked.
func (s *schedule) updateDue(now time.Time) (due, full bool) {
	full = !now.Before(s.nextUpdate) || s.requested && !now.Before(s.requestTime())
	return full || !s.fastUntil.IsZero() && !now.Before(s.nextFast), full
}

func (s *schedule) requestTime() time.Time { return s.lastRequest.Add(minRequestGap) }

// updateStarted records that an update starts at now. If a requested update was due, the request is cleared.
func (s *schedule) updateStarted(now time.Time) {
	if s.requested && !now.Before(s.requestTime()) {
		s.requested, s.lastRequest = false, now
	}
}

// updateCompleted sets the times of the next updates. It is called after each update, and after the report that followed. full is
// true after a full update.
func (s *schedule) updateCompleted(now time.Time, full bool) {
	if full {
		s.nextUpdate = now.Add(backoff.Jitter(s.updatePeriod, 1, 1+periodJitter, s.random()))
	}
	s.nextFast = now.Add(fastPeriod)
	if !now.Before(s.fastUntil) {
		s.stopFastUpdates()
	}
}

// stopFastUpdates stops the fast updates. It is called once the API server has received that the node is ready.
func (s *schedule) stopFastUpdates() { s.fastUntil = time.Time{} }

// reportDue reports whether the status must be sent at now even if it has not changed, because the report period has passed.
func (s *schedule) reportDue(now time.Time) bool {
	return s.lastReport.IsZero() || now.Sub(s.lastReport) >= s.reportPeriod+s.reportJitter
}

// reportStarted is called before a report is sent. If changed is true, or for the first report, it makes the next report period
// longer or shorter at random: nodes whose status changes together then report at different times. It follows tryUpdateNodeStatus
// in the kubelet.
func (s *schedule) reportStarted(changed bool) {
	s.reportJitter = 0
	if changed || s.lastReport.IsZero() {
		s.reportJitter = backoff.Jitter(s.reportPeriod, -0.5, 0.5, s.random())
	}
}

// reportAccepted records that the API server accepted a status at now.
func (s *schedule) reportAccepted(now time.Time) { s.lastReport = now }

// canRegister reports whether the Node may be registered at now. After a failed registration or a deletion of the Node, a
// back-off must pass first.
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

// nodeDeleted sets the time at which a deleted Node is registered again. The delay grows with deletions, the number of
// consecutive deletions.
func (s *schedule) nodeDeleted(now time.Time, deletions int) {
	s.nextRegister = now.Add(backoff.Jitter(reregisterBackoff.After(deletions), 1, 1.5, s.random()))
}

// nextWake returns the time of the next update. If awaitsRegistration is true and the next registration is earlier, it returns
// the time of the registration.
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
