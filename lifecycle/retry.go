// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/backoff"
	"github.com/seed81659283/nodeagent/internal/lifecycle/mailbox"
	"github.com/seed81659283/nodeagent/internal/sleep"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// publishAfterError publishes the status of the pod after a failed sync, and returns the delay before the next sync. If due is
// set, the next sync is not later.
func (w *worker) publishAfterError(ctx context.Context, pod *corev1.Pod, observed cri.Pod, deleted bool, due time.Time, err error) time.Duration {
	newest, unread := w.readAfterActions(ctx)
	switch {
	case unread == nil:
		observed = newest // the observation of the plan may be older than the last published status
	case w.published.status != nil:
		observed = w.published.observed
	}
	w.decideResize(pod, observed, deleted)
	w.published.starting = false   // no start is in progress
	if unread == nil || !deleted { // an older observation may have running containers that were published as terminated
		w.publishObserved(ctx, pod, observed, deleted)
	}
	wait := w.recordFailure(ctx, err, due)
	if newest, _ := w.mailbox.Desired(); newest != pod && !mailbox.IsSameExceptStatus(newest, pod) {
		return 0 // the spec has changed during the sync
	}
	return wait
}

// readAfterActions returns an observation of the pod after a failed sync.
func (w *worker) readAfterActions(ctx context.Context) (cri.Pod, error) {
	if len(w.published.replaced) == 0 {
		return w.readPod(ctx, time.Time{})
	}
	// The sync was replacing containers: an observation from before may lack the new container.
	newest, err := w.observePod(ctx)
	if err == nil {
		w.published.replaced = nil
	}
	return newest, err
}

// recordFailure reports the error of a failed sync, and returns the back-off before the next sync. If due is set, the next sync
// is not later.
func (w *worker) recordFailure(ctx context.Context, err error, due time.Time) time.Duration {
	if ctx.Err() != nil {
		return 0
	}
	w.progress.failures++
	w.shared.setLastError(err)
	wait := retryDelay(w.progress.failures, errors.Is(err, cri.ErrUnavailable), w.r.opts.Pacing.Rand())
	if at := earliestRetry(err); !at.IsZero() {
		wait = max(time.Until(at), wait)
	}
	if !due.IsZero() {
		wait = min(wait, max(time.Until(due), 0))
	}
	w.reporter.ReportSyncError(err, wait)
	return wait
}

// recordSuccess records that a sync has succeeded. It resets the back-off and the last error of the pod.
func (w *worker) recordSuccess() {
	w.progress.failures = 0
	w.shared.setLastError(nil)
}

// maxImmediateTeardowns is how often the teardown of a pod is repeated without delay. A correct runtime needs two teardowns.
const maxImmediateTeardowns = 5

// teardownDelay returns the delay before the worker checks again whether the runtime has removed the pod.
func (w *worker) teardownDelay() time.Duration {
	if w.progress.teardowns <= maxImmediateTeardowns {
		return 0
	}
	// The runtime reports success but does not remove the pod.
	return retryDelay(w.progress.teardowns-maxImmediateTeardowns, false, w.r.opts.Pacing.Rand())
}

// The delay after the first failed sync, and the longest.
const (
	retryFirst = time.Second
	retryMax   = 10 * time.Second
)

// retryDelay returns the back-off after this number of consecutive failures: 1 s, doubled up to 10 s, plus a random part of at
// most half of it.
func retryDelay(failures int, unavailable bool, random float64) time.Duration {
	if unavailable {
		failures = 1 // the pod is not the cause
	}
	wait := backoff.Policy{First: retryFirst, Max: retryMax}.After(failures)
	return backoff.Jitter(wait, 1, 1.5, random)
}

// nextSyncDelay returns the delay before the next sync after a success: the resync period with jitter, or until wake if that is
// set and earlier.
func (w *worker) nextSyncDelay(wake, now time.Time) time.Duration {
	d := w.r.opts.Pacing.Resync + time.Duration(w.r.opts.Pacing.Rand()*float64(w.r.opts.Pacing.Resync)/2)
	if !wake.IsZero() {
		d = min(d, max(wake.Sub(now), 0))
	}
	return d
}

// earliestRetry returns the time before which no retry can succeed after err, or zero if there is none.
func earliestRetry(err error) time.Time {
	switch x := err.(type) { //nolint:errorlint // each wrapped error is examined
	case *podstatus.StartError:
		return x.Retry
	case interface{ Unwrap() []error }:
		var first time.Time
		for _, err := range x.Unwrap() {
			at := earliestRetry(err)
			if at.IsZero() {
				return at
			}
			first = sleep.Earlier(first, at)
		}
		return first
	case interface{ Unwrap() error }:
		return earliestRetry(x.Unwrap())
	}
	return time.Time{}
}
