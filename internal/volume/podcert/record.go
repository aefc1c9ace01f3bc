// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podcert

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/backoff"
	"github.com/seed81659283/nodeagent/internal/sleep"
	"github.com/seed81659283/nodeagent/volume"
)

const (
	maxJitter = 5 * time.Minute  // after the time at which a renewal may begin
	overdue   = 10 * time.Minute // after which a renewal that has not come is told
	minAge    = time.Minute      // of a certificate that is renewed, whatever its issuer says
)

// policy is how long a request that has come to nothing is not repeated.
func policy() backoff.Policy { return backoff.Policy{First: time.Second, Max: 5 * time.Minute} }

// source is one podCertificate source of one pod.
type source struct {
	podUID, volume string
	index          int
}

// record is what is known of the certificate of one source.
type record struct {
	pod    *corev1.Pod
	asked  *corev1.PodCertificateProjection
	have   volume.PodCertificate // as it was issued last; without a key: never
	renew  time.Time             // from when on another one is asked for
	ends   time.Time             // when it expires
	cancel context.CancelFunc    // ends the request that is under way; nil: there is none
	err    error                 // of the last request
	final  bool                  // that is a CertificateRefusedError

	failures  int
	notBefore time.Time // when a request that has failed is repeated

	toldOverdue, toldExpired bool
}

// next returns when the next request is due; never, while one is under way or after one was refused.
func (r *record) next() (at time.Time, ever bool) {
	if r.cancel != nil || r.final {
		return at, false
	}
	if r.renew.After(r.notBefore) {
		return r.renew, true
	}
	return r.notBefore, true
}

// answer notes what has come of a request. The random number is from 0 to 1.
func (r *record) answer(key []byte, issued volume.IssuedCertificate, err error, random float64, now time.Time) {
	r.cancel, r.err = nil, err
	if err == nil {
		r.have = volume.PodCertificate{Key: key, Chain: issued.Chain}
		r.renew, r.ends = issued.BeginRefreshAt.Add(time.Duration(random*float64(maxJitter))), issued.NotAfter
		r.failures, r.notBefore = 0, time.Time{}
		r.notBefore = now.Add(minAge)
		r.toldOverdue, r.toldExpired = false, false
		return
	}
	if _, refused := errors.AsType[*volume.CertificateRefusedError](err); refused {
		r.final = true
		return
	}
	r.failures++
	r.notBefore = now.Add(policy().After(r.failures))
}

// The reasons of events about certificates that were not renewed.
const (
	ReasonOverdue = "CertificateOverdueForRefresh"
	ReasonExpired = "CertificateExpired"
)

// warn returns the reasons of events that are due now, each once, and when the next one would be.
func (r *record) warn(now time.Time) (reasons []string, wake time.Time) {
	if r.have.Key == nil || r.final {
		return nil, wake
	}
	for _, w := range []struct {
		told   *bool
		at     time.Time
		reason string
	}{{&r.toldOverdue, r.renew.Add(overdue), ReasonOverdue}, {&r.toldExpired, r.ends, ReasonExpired}} {
		switch {
		case *w.told:
		case now.After(w.at):
			*w.told = true
			reasons = append(reasons, w.reason)
		default:
			wake = sleep.Earlier(wake, w.at.Add(1))
		}
	}
	return reasons, wake
}

// phase is the state of the certificate, in the words of the kubelet's metric.
func (r *record) phase(now time.Time) string {
	refused, _ := errors.AsType[*volume.CertificateRefusedError](r.err)
	switch {
	case r.final && refused != nil:
		return refusalOf(refused).verb
	case r.have.Key == nil:
		return "not_yet_issued"
	case now.After(r.ends):
		return "expired"
	case now.After(r.renew.Add(overdue)):
		return "overdue_for_refresh"
	}
	return "fresh"
}

// get returns the certificate, or why there is none.
func (r *record) get() (volume.PodCertificate, error) {
	switch {
	case r.final:
		return volume.PodCertificate{}, r.err
	case r.have.Key != nil:
		return r.have, nil
	case r.err != nil:
		return volume.PodCertificate{}, &notIssuedError{r.err}
	}
	return volume.PodCertificate{}, errNotIssued
}

// errNotIssued is in the words of the kubelet.
var errNotIssued = errors.New("credential bundle is not issued yet")

// notIssuedError is errNotIssued with the cause.
type notIssuedError struct{ err error }

// Error names the cause.
func (e *notIssuedError) Error() string { return errNotIssued.Error() + ": " + e.err.Error() }

// Unwrap returns both.
func (e *notIssuedError) Unwrap() []error { return []error{errNotIssued, e.err} }
