// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package certrequest decides when a node requests a certificate, for which names, and with which CertificateSigningRequest. It is pure: it
// sends and stores nothing.
package certrequest

import (
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	"github.com/seed81659283/nodeagent/internal/backoff"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

// Times of a rotation.
const (
	// MinInterval is between two requests for the same, the first of which was issued or refused. A signer whose
	// certificates are due as soon as they are issued is not asked in a tight loop.
	MinInterval = time.Minute
	// maxRequests are made in a MinInterval, whatever the reason.
	maxRequests = 5
	// Timeout is how long a request waits to be approved and signed.
	Timeout = 15 * time.Minute
	// PollInterval is between two looks at the addresses of the node, whose changes nobody tells.
	PollInterval = time.Second
	// MaxSleep is between two looks at the clock, which may be set at any time, and, when there is no valid certificate, at
	// files that somebody may have written.
	MaxSleep = 10 * time.Second
)

// RetryDelay returns the wait after requests that have failed in a row: 2 s, doubling to 32 s, and up to a tenth more.
func RetryDelay(failures int, random float64) time.Duration {
	policy := backoff.Policy{First: 2 * time.Second, Max: 32 * time.Second}
	return backoff.Jitter(policy.After(failures), 1, 1.1, random)
}

// RotationDeadline returns when a certificate is to be replaced: after 70 to 90 % of the time for which it is valid. random is in
// [0,1) and decides, so that the nodes of a cluster that was set up at once do not come all at once.
func RotationDeadline(notBefore, notAfter time.Time, random float64) time.Time {
	total := notAfter.Sub(notBefore)
	return notBefore.Add(total + time.Duration(random*0.2*float64(total)) - time.Duration(float64(total)*0.3))
}

// Pending is a request that was made and not answered.
type Pending struct {
	Template Template
	Since    time.Time
}

// State is what [Step] decides by.
type State struct {
	Leaf         *x509.Certificate // of the current certificate; nil: there is none
	Random       float64           // for the deadline of Leaf; in [0,1)
	IsBootstrap  bool              // Leaf is not the node's own, but one that it was given to begin with
	Template     *Template         // what the certificate has to be for; nil: that is not known yet
	Pending      *Pending          // nil: no request is under way
	LastTemplate *Template         // what the last request was for; nil: there was none
	RequestTimes []time.Time       // when requests were made, the last one at the end; five are enough
	Failures     int               // of requests, in a row
	LastRefused  bool              // the last of these was denied, or the signer has failed for good
	FailedAt     time.Time         // when the last of these failed
}

// Verb is what is to be done.
type Verb string

// What may be to be done.
const (
	Wait    Verb = "wait"
	Request Verb = "request" // make a key and a request
	Cancel  Verb = "cancel"  // give the request up that is under way
)

// Action is an answer of [Step].
type Action struct {
	Verb   Verb
	Reason string    // for a log line
	Wake   time.Time // when to ask again, at the latest; zero: at once
}

// Step decides what is to be done now about a certificate. It is pure. What it is asked for a second time, with the same
// state and the same time, it answers in the same way.
func Step(s State, now time.Time) Action {
	if s.Pending != nil {
		return s.stepPending(now)
	}
	if s.Template == nil {
		return Action{Verb: Wait, Reason: "there is nothing to request a certificate for yet", Wake: now.Add(PollInterval)}
	}
	reason, due := s.requestTime(now)
	wake := sleep.Earlier(due, now.Add(MaxSleep))
	if due.After(now) {
		return Action{Verb: Wait, Reason: reason, Wake: wake}
	}
	if at := s.earliestRequest(now); at.After(now) {
		return Action{Verb: Wait, Reason: reason + ", after a pause", Wake: sleep.Earlier(at, now.Add(MaxSleep))}
	}
	return Action{Verb: Request, Reason: reason}
}

// await decides about a request that is under way. One that is for something else than what is wanted now, and not had, is
// given up: its certificate would be of no use.
func (s *State) stepPending(now time.Time) Action {
	switch end := s.Pending.Since.Add(Timeout); {
	case !now.Before(end):
		return Action{Verb: Cancel, Reason: fmt.Sprintf("it was not signed within %v", Timeout)}
	case s.Template != nil && !s.Template.Equal(s.Pending.Template) && s.mismatch() != "":
		return Action{Verb: Cancel, Reason: "it is for something else than what is wanted now"}
	default:
		return Action{Verb: Wait, Reason: "a request is under way", Wake: sleep.Earlier(end, now.Add(MaxSleep))}
	}
}

// lacks returns why the current certificate is not the one that is wanted, or "".
func (s *State) mismatch() string {
	if s.Leaf == nil {
		return "there is no certificate"
	}
	if missing := s.Template.Missing(s.Leaf); missing != "" {
		return "the certificate lacks " + missing
	}
	return ""
}

// reason returns when a certificate is to be requested, and why.
func (s *State) requestTime(now time.Time) (string, time.Time) {
	if cause := s.mismatch(); cause != "" {
		return cause, now
	}
	if s.IsBootstrap {
		return "the certificate is one to begin with", now
	}
	if now.After(s.Leaf.NotAfter) {
		return "the certificate has expired", now
	}
	return "the certificate is to be replaced in time", RotationDeadline(s.Leaf.NotBefore, s.Leaf.NotAfter, s.Random)
}

// earliest returns from when on a request may be made, if there is a reason to.
func (s *State) earliestRequest(now time.Time) (at time.Time) {
	last := func(i int) time.Time { // the i-th from the end, unless the clock says that it is yet to come
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

// AppendRequestTime returns the times of requests with one more, and without those that nobody will ask for.
func AppendRequestTime(requests []time.Time, now time.Time) []time.Time {
	requests = append(slices.Clone(requests), now)
	return requests[max(0, len(requests)-maxRequests):]
}
