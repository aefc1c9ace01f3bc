// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/poddir"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

// Times of waiting for a complete list of the pods of the runtime.
const (
	listRetryPeriod  = time.Second     // after how long it is looked again whether there is one
	listReportDelay  = 8 * time.Second // after how long without one somebody is told, who is told again after the next
	listReportPeriod = time.Minute
)

// begin waits until the runtime has been read once and has said who it is: nothing can be decided before. Where its list is
// larger than an answer may be, single pods have to do. It returns false when ctx ends first.
func (r *Reconciler) awaitFirstList(ctx context.Context) bool {
	var missing reportThrottle
	for {
		err := r.checkFirstList(ctx)
		if err == nil {
			if err = r.readRuntimeName(ctx); err == nil {
				return true
			}
			if ctx.Err() == nil {
				r.opts.Logger.Warn("runtime", "error", err, "retry", listRetryPeriod)
			}
		}
		if ctx.Err() == nil && missing.allowReport(time.Now(), listReportDelay) {
			r.reportRuntimeError(fmt.Errorf("no reading of the runtime: is the Run of the observer running (pleg.Generator.Run), and does the runtime answer? %w", err))
		}
		if sleep.For(ctx, listRetryPeriod) != nil {
			return false
		}
	}
}

// firstReading returns nil when the runtime has been read as far as it can be.
func (r *Reconciler) checkFirstList(ctx context.Context) error {
	short, cancel := context.WithTimeout(ctx, listRetryPeriod)
	defer cancel()
	if _, err := r.observer.NewerThan(short, "", time.Time{}); err == nil {
		return nil
	}
	_, err := r.observer.Pods()
	if errors.Is(err, cri.ErrTooLarge) {
		r.loadRecordedPods()
		return nil
	}
	return err
}

// recall notes the pods that a former agent left a record of: where there is no list of all, one of them may have the name
// of a pod that is wanted now; where there is one, those that are not in it have nothing but files.
func (r *Reconciler) loadRecordedPods() {
	if r.opts.Dirs.Pods == "" {
		return
	}
	uids, err := poddir.Recorded(r.opts.Dirs.Pods)
	if err != nil {
		r.opts.Logger.Warn("pod directories", "error", err)
	}
	for _, uid := range uids {
		recorder := poddir.NewRecorder(poddir.Of(r.opts.Dirs.Pods, uid), "")
		if err := recorder.Load(); err != nil {
			r.opts.Logger.Warn("pod record", "uid", uid, "error", err)
		}
		namespace, name, _ := strings.Cut(recorder.Get().Pod, "/")
		r.recordedPods = append(r.recordedPods, cri.PodIdentity{UID: uid, Name: name, Namespace: namespace})
	}
}

// reportPartial tells that there may be pods that nobody knows of, because the runtime cannot be listed, and what comes of
// that. A list that fails once or twice is the observer's to tell.
func (r *Reconciler) reportListError(err error) {
	after := listReportPeriod
	if errors.Is(err, cri.ErrTooLarge) {
		after = 0
	}
	switch {
	case err == nil:
		r.listErrors = reportThrottle{}
	case !r.listErrors.allowReport(time.Now(), after):
	case errors.Is(err, cri.ErrTooLarge):
		r.reportRuntimeError(fmt.Errorf("list the pods of the runtime: %w: wanted pods are read one by one; orphaned pods, and the directories "+
			"and cgroups of former ones, are left alone until the list fits: remove pods that nobody wants (crictl rmp), or make "+
			"their annotations shorter", err))
	default:
		r.reportRuntimeError(fmt.Errorf("list the pods of the runtime, nothing that is not wanted is removed until it works: %w", err))
	}
}

// complain tells of what concerns all pods.
func (r *Reconciler) reportRuntimeError(err error) {
	r.opts.Logger.Error("runtime", "error", err)
	if hook := r.opts.Hooks.Error; hook != nil {
		hook(cri.PodIdentity{}, err, listRetryPeriod)
	}
}

// complaint is when something that goes on is told. The zero value has not begun.
type reportThrottle struct{ next time.Time }

// due reports whether it is time to tell: when it has gone on for so long, and each readingRemind after that.
func (c *reportThrottle) allowReport(now time.Time, delay time.Duration) bool {
	if c.next.IsZero() {
		c.next = now.Add(delay)
	}
	if now.Before(c.next) {
		return false
	}
	c.next = now.Add(listReportPeriod)
	return true
}
