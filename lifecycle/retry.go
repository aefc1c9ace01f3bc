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

// retryIn publishes what has become of a pod for which something failed, and returns how long to wait: not at all if
// something else is wanted of it now, and no longer than until something else is due, unless that is zero.
func (w *worker) publishAfterError(ctx context.Context, pod *corev1.Pod, observed cri.Pod, deleted bool, due time.Time, err error) time.Duration {
	newest, unread := w.readAfterActions(ctx)
	if unread == nil {
		observed = newest // what was planned on may be older than what was published meanwhile
	}
	w.decideResize(pod, observed, deleted)
	w.published.starting = false   // nothing is under way any more
	if unread == nil || !deleted { // of a pod that ends, an older reading has containers run that were published as terminated
		w.publishObserved(ctx, pod, observed, deleted)
	}
	wait := w.recordFailure(ctx, err, due)
	if newest, _ := w.mailbox.Wanted(); newest != pod && !mailbox.Same(newest, pod) {
		return 0
	}
	return wait
}

// readAfterWork returns the last reading of the pod or, where running containers were to be replaced, one that is newer than that: an older
// one may have the exit of a container and not its successor, which is created and could not be started.
func (w *worker) readAfterActions(ctx context.Context) (cri.Pod, error) {
	if len(w.published.replaced) == 0 {
		return w.readPod(ctx, time.Time{})
	}
	newest, err := w.observePod(ctx)
	if err == nil {
		w.published.replaced = nil
	}
	return newest, err
}

// failed reports an error and returns how long to wait: no longer than until something else is due, unless that is zero.
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
	w.reporter.SyncFailed(err, wait)
	return wait
}

// recovered notes that all went well.
func (w *worker) recordSuccess() {
	w.progress.failures = 0
	w.shared.setLastError(nil)
}

// takeDownsAtOnce is how often a pod is looked at again at once after all that takes it down has succeeded. Two are enough
// for a runtime that does what it says.
const maxImmediateTeardowns = 5

// nextTakeDown returns how long to wait before it is looked whether anything of a pod is left that was taken down. A runtime
// that says it has done what it has not is asked again and again, but not without a pause.
func (w *worker) teardownDelay() time.Duration {
	if w.progress.teardowns <= maxImmediateTeardowns {
		return 0
	}
	return retryDelay(w.progress.teardowns-maxImmediateTeardowns, false, w.r.opts.Pacing.Rand())
}

// The wait after a first failure, and the longest after several.
const (
	retryFirst = time.Second
	retryMax   = 10 * time.Second
)

// retryDelay is the wait after a number of failures in a row: 1 s, doubling to 10 s, plus up to half at random. A
// runtime that is away is asked every second or two, because nothing is wrong with the pod.
func retryDelay(failures int, unavailable bool, random float64) time.Duration {
	if unavailable {
		failures = 1
	}
	wait := backoff.Policy{First: retryFirst, Max: retryMax}.After(failures)
	return backoff.Jitter(wait, 1, 1.5, random)
}

// due returns how long to wait when all went well.
func (w *worker) nextSyncDelay(wake, now time.Time) time.Duration {
	d := w.r.opts.Pacing.Resync + time.Duration(w.r.opts.Pacing.Rand()*float64(w.r.opts.Pacing.Resync)/2)
	if !wake.IsZero() {
		d = min(d, max(wake.Sub(now), 0))
	}
	return d
}

// retryAt returns when it makes sense to try again after an error that may join several; zero: at any time.
func earliestRetry(err error) time.Time {
	switch x := err.(type) { //nolint:errorlint // each layer is looked at
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
