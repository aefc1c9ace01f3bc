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
	maxJitter    = 5 * time.Minute  // maximum delay of a renewal after BeginRefreshAt
	overdueAfter = 10 * time.Minute // delay of a renewal after which a warning event is recorded
	minAge       = time.Minute      // a certificate is not renewed earlier, even if BeginRefreshAt is earlier
)

// retryPolicy returns the delays before a failed request is repeated, from 1 s to 5 min.
func retryPolicy() backoff.Policy { return backoff.Policy{First: time.Second, Max: 5 * time.Minute} }

// source identifies a podCertificate source by the UID of the pod, the name of the volume, and the index in the sources of the
// volume.
type source struct {
	podUID, volume string
	index          int
}

// certRecord is the state of the certificate of one source. Keeper.mu guards it.
type certRecord struct {
	pod        *corev1.Pod
	projection *corev1.PodCertificateProjection
	issued     volume.PodCertificate // last issued certificate; without a key: none yet
	renewAt    time.Time             // time of the next renewal
	expiresAt  time.Time             // expiry of the certificate
	cancel     context.CancelFunc    // cancels the running request; nil: none is running
	err        error                 // error of the last request
	refused    bool                  // err is a CertificateRefusedError: no request follows

	failures int
	retryAt  time.Time // earliest retry of a failed request

	warnedOverdue, warnedExpired bool
}

// nextRequest returns when Run must request the certificate, if it is needed.
func (r *certRecord) nextRequest() (at time.Time, needed bool) {
	if r.cancel != nil || r.refused {
		return at, false
	}
	if r.renewAt.After(r.retryAt) {
		return r.renewAt, true
	}
	return r.retryAt, true
}

// applyResult records the key and the issued certificate, or err, after a request. random is in [0,1).
func (r *certRecord) applyResult(key []byte, issued volume.IssuedCertificate, err error, random float64, now time.Time) {
	r.cancel, r.err = nil, err
	if err == nil {
		r.issued = volume.PodCertificate{Key: key, Chain: issued.Chain}
		// The renewals of different certificates are spread over maxJitter.
		r.renewAt, r.expiresAt = issued.BeginRefreshAt.Add(time.Duration(random*float64(maxJitter))), issued.NotAfter
		r.failures, r.retryAt = 0, time.Time{}
		r.retryAt = now.Add(minAge)
		r.warnedOverdue, r.warnedExpired = false, false
		return
	}
	if _, refused := errors.AsType[*volume.CertificateRefusedError](err); refused {
		r.refused = true
		return
	}
	r.failures++
	r.retryAt = now.Add(retryPolicy().After(r.failures))
}

// Reasons of events about certificates that were not renewed in time.
const (
	ReasonOverdue = "CertificateOverdueForRefresh"
	ReasonExpired = "CertificateExpired"
)

// dueWarnings returns the reasons of due warning events, once per certificate, and the time of the next one or zero.
func (r *certRecord) dueWarnings(now time.Time) (reasons []string, wake time.Time) {
	if r.issued.Key == nil || r.refused {
		return nil, wake
	}
	for _, w := range []struct {
		told   *bool
		at     time.Time
		reason string
	}{{&r.warnedOverdue, r.renewAt.Add(overdueAfter), ReasonOverdue}, {&r.warnedExpired, r.expiresAt, ReasonExpired}} {
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

// metricState returns the state of the certificate, such as "fresh" or "expired", as a label value of the kubelet's metric
// kubelet_podcertificate_states.
func (r *certRecord) metricState(now time.Time) string {
	refused, _ := errors.AsType[*volume.CertificateRefusedError](r.err)
	switch {
	case r.refused && refused != nil:
		return refusalTextOf(refused).verb
	case r.issued.Key == nil:
		return "not_yet_issued"
	case now.After(r.expiresAt):
		return "expired"
	case now.After(r.renewAt.Add(overdueAfter)):
		return "overdue_for_refresh"
	}
	return "fresh"
}

// currentCertificate returns the last issued certificate.
func (r *certRecord) currentCertificate() (volume.PodCertificate, error) {
	switch {
	case r.refused:
		// Even if an earlier certificate is still valid.
		return volume.PodCertificate{}, r.err
	case r.issued.Key != nil:
		return r.issued, nil
	case r.err != nil:
		return volume.PodCertificate{}, &notIssuedError{r.err}
	}
	return volume.PodCertificate{}, errNotIssued
}

// errNotIssued has the text of the kubelet.
var errNotIssued = errors.New("credential bundle is not issued yet")

// notIssuedError wraps errNotIssued and the error of the last request.
type notIssuedError struct{ err error }

// Error returns the text of errNotIssued, followed by the text of the cause.
func (e *notIssuedError) Error() string { return errNotIssued.Error() + ": " + e.err.Error() }

// Unwrap returns errNotIssued and the cause.
func (e *notIssuedError) Unwrap() []error { return []error{errNotIssued, e.err} }
