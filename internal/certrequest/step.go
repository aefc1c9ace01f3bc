// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package certrequest decides when a node requests a certificate, for which names, and with which CertificateSigningRequest. It
// sends and stores nothing, and reads no clock.
package certrequest

import (
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	"github.com/seed81659283/nodeagent/internal/backoff"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

// Durations and limits of certificate requests.
const (
	// MinInterval is the shortest time between two requests for equal names, after the first was issued or refused. Without it,
	// a signer whose certificates must be replaced at once would cause a busy loop.
	MinInterval = time.Minute
	// maxRequests is the largest number of requests in one MinInterval.
	maxRequests = 5
	// Timeout is how long a request waits for approval and signature.
	Timeout = 15 * time.Minute
	// PollInterval is the time between two checks of the node's addresses.
	PollInterval = time.Second
	// MaxSleep is the longest time between two calls of [Step], because the clock may be set at any time. While no certificate is
	// valid, it is also the time between two reads of the certificate files, which an administrator may have replaced.
	MaxSleep = 10 * time.Second
)

// RetryDelay returns the delay after the given number of consecutive failures: 2 s, doubling to 32 s, plus up to 10 %.
// random, from [0,1), selects how much is added.
func RetryDelay(failures int, random float64) time.Duration {
	policy := backoff.Policy{First: 2 * time.Second, Max: 32 * time.Second}
	return backoff.Jitter(policy.After(failures), 1, 1.1, random)
}

// RotationDeadline returns when a certificate must be replaced: after 70 to 90 % of its lifetime. random, a random number in
// [0,1), spreads the requests of the nodes of a cluster.
func RotationDeadline(notBefore, notAfter time.Time, random float64) time.Time {
	total := notAfter.Sub(notBefore)
	return notBefore.Add(total + time.Duration(random*0.2*float64(total)) - time.Duration(float64(total)*0.3))
}

// Pending is the certificate request in flight.
type Pending struct {
	Template Template
	Since    time.Time
}

// State is the input of [Step].
type State struct {
	Leaf         *x509.Certificate // leaf of the current certificate; nil: no valid certificate
	Random       float64           // selects the rotation deadline of Leaf; in [0,1)
	IsBootstrap  bool              // Leaf is a bootstrap credential, not issued for this node
	Template     *Template         // names that the certificate must have; nil: not known yet
	Pending      *Pending          // nil: no request in flight
	LastTemplate *Template         // names of the last request; nil: none
	RequestTimes []time.Time       // start times of requests, oldest first; only the last five are used
	Failures     int               // failed requests in a row
	LastRefused  bool              // the last failed request was denied, or the signer has failed
	FailedAt     time.Time         // time of the last failure
}

// Verb is the kind of an [Action].
type Verb string

// The kinds of actions.
const (
	Wait    Verb = "wait"
	Request Verb = "request" // create a key and a request
	Cancel  Verb = "cancel"  // cancel the request in flight
)

// Action is the result of [Step].
type Action struct {
	Verb   Verb
	Reason string    // for log lines
	Wake   time.Time // latest time for the next call of Step; zero: at once
}

// Step decides whether to request a certificate, to cancel the pending request or to wait. It depends only on its arguments.
// It waits while State.Template is nil, because the names for the certificate are not known yet.
func Step(state State, now time.Time) Action {
	if state.Pending != nil {
		return state.stepPending(now)
	}
	if state.Template == nil {
		return Action{Verb: Wait, Reason: "the names for the certificate are not known yet", Wake: now.Add(PollInterval)}
	}
	reason, due := state.requestTime(now)
	wake := sleep.Earlier(due, now.Add(MaxSleep))
	if due.After(now) {
		return Action{Verb: Wait, Reason: reason, Wake: wake}
	}
	if at := state.earliestRequest(now); at.After(now) {
		return Action{Verb: Wait, Reason: reason + ", after a pause", Wake: sleep.Earlier(at, now.Add(MaxSleep))}
	}
	return Action{Verb: Request, Reason: reason}
}

// stepPending cancels a pending request that is not answered within [Timeout] or has outdated names.
func (s *State) stepPending(now time.Time) Action {
	switch end := s.Pending.Since.Add(Timeout); {
	case !now.Before(end):
		return Action{Verb: Cancel, Reason: fmt.Sprintf("it was not signed within %v", Timeout)}
	case s.Template != nil && !s.Template.Equal(s.Pending.Template) && s.mismatch() != "":
		return Action{Verb: Cancel, Reason: "its names are outdated"}
	default:
		return Action{Verb: Wait, Reason: "a request is under way", Wake: sleep.Earlier(end, now.Add(MaxSleep))}
	}
}

// mismatch returns a log text with the first required name that the current certificate does not have, or "".
func (s *State) mismatch() string {
	if s.Leaf == nil {
		return "there is no certificate"
	}
	if missing := s.Template.Missing(s.Leaf); missing != "" {
		return "the certificate lacks " + missing
	}
	return ""
}

// requestTime returns when the next certificate request is due, and the reason for this request as a text for the log.
func (s *State) requestTime(now time.Time) (reason string, due time.Time) {
	if cause := s.mismatch(); cause != "" {
		return cause, now
	}
	if s.IsBootstrap {
		return "the certificate is a bootstrap credential", now
	}
	if now.After(s.Leaf.NotAfter) {
		return "the certificate has expired", now
	}
	return "the certificate must be rotated before it expires", RotationDeadline(s.Leaf.NotBefore, s.Leaf.NotAfter, s.Random)
}

// earliestRequest returns the earliest time at which the rate limits and the back-off permit a request. The zero time means
// that a request is permitted now.
func (s *State) earliestRequest(now time.Time) (at time.Time) {
	last := func(i int) time.Time { // the i-th request from the end, unless the clock was set back since
		if i > len(s.RequestTimes) || s.RequestTimes[len(s.RequestTimes)-i].After(now) {
			return time.Time{}
		}
		return s.RequestTimes[len(s.RequestTimes)-i]
	}
	later := func(than time.Time, d time.Duration) {
		if !than.IsZero() && than.Add(d).After(at) {
			at = than.Add(d)
		}
	}
	later(last(maxRequests), MinInterval)
	if s.Failures > 0 && !s.FailedAt.After(now) {
		later(s.FailedAt, RetryDelay(s.Failures, s.Random))
		if s.LastRefused {
			later(s.FailedAt, MinInterval)
		}
	}
	if s.Failures == 0 && s.LastTemplate != nil && s.Template.Equal(*s.LastTemplate) {
		later(last(1), MinInterval)
	}
	return at
}

// AppendRequestTime returns a copy of requests with now appended. It keeps only the last five times, which is all that
// [Step] reads.
func AppendRequestTime(requests []time.Time, now time.Time) []time.Time {
	requests = append(slices.Clone(requests), now)
	return requests[max(0, len(requests)-maxRequests):]
}
