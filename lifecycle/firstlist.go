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

// The intervals while the runtime's pods cannot be listed completely.
const (
	listRetryPeriod  = time.Second     // between two attempts
	listReportDelay  = 8 * time.Second // without a complete list before the error is reported
	listReportPeriod = time.Minute     // between two reports
)

// awaitFirstList waits for the first list of the runtime's pods and the name of the runtime. It returns false if ctx ends
// first.
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
			r.reportRuntimeError(fmt.Errorf("no list of the runtime's pods: is the observer running (pleg.Generator.Run), and does the runtime respond? %w", err))
		}
		if sleep.For(ctx, listRetryPeriod) != nil {
			return false
		}
	}
}

// checkFirstList returns nil if the pods of the runtime have been listed.
func (r *Reconciler) checkFirstList(ctx context.Context) error {
	short, cancel := context.WithTimeout(ctx, listRetryPeriod)
	defer cancel()
	if _, err := r.observer.NewerThan(short, "", time.Time{}); err == nil {
		return nil
	}
	_, err := r.observer.Pods()
	if errors.Is(err, cri.ErrTooLarge) {
		// The list exceeds the message size limit of the runtime: pods are then read one by one.
		r.loadRecordedPods()
		return nil
	}
	return err
}

// loadRecordedPods stores in r.recordedPods the identity of each pod that has a record below Dirs.Pods.
func (r *Reconciler) loadRecordedPods() {
	if r.opts.Dirs.Pods == "" {
		return
	}
	uids, err := poddir.RecordedPods(r.opts.Dirs.Pods)
	if err != nil {
		r.opts.Logger.Warn("pod directories", "error", err)
	}
	for _, uid := range uids {
		recorder := poddir.NewRecorder(poddir.DirOf(r.opts.Dirs.Pods, uid), "")
		if err := recorder.Load(); err != nil {
			r.opts.Logger.Warn("pod record", "uid", uid, "error", err)
		}
		namespace, name, _ := strings.Cut(recorder.Get().Pod, "/")
		// Of a pod that no longer exists, the directory must be removed.
		r.recordedPods = append(r.recordedPods, cri.PodIdentity{UID: uid, Name: name, Namespace: namespace})
	}
}

// reportListError reports the result of the last attempt to list the runtime's pods. nil ends the reports.
func (r *Reconciler) reportListError(err error) {
	// The Observer itself logs short failures.
	after := listReportPeriod
	if errors.Is(err, cri.ErrTooLarge) {
		after = 0
	}
	switch {
	case err == nil:
		r.listErrors = reportThrottle{}
	case !r.listErrors.allowReport(time.Now(), after):
	case errors.Is(err, cri.ErrTooLarge):
		r.reportRuntimeError(fmt.Errorf("list the pods of the runtime: %w: desired pods are read one by one; orphaned pods and their directories "+
			"and cgroups are kept until the list fits: remove unused pods (crictl rmp), or shorten their annotations", err))
	default:
		r.reportRuntimeError(fmt.Errorf("list the pods of the runtime; no orphaned pod is removed until it succeeds: %w", err))
	}
}

// reportRuntimeError logs an error of the runtime that concerns no particular pod, and passes it to Hooks.Error.
func (r *Reconciler) reportRuntimeError(err error) {
	r.opts.Logger.Error("runtime", "error", err)
	if hook := r.opts.Hooks.Error; hook != nil {
		hook(cri.PodIdentity{}, err, listRetryPeriod)
	}
}

// reportThrottle limits the reports of a persistent error. The zero value has seen no error.
type reportThrottle struct{ next time.Time }

// allowReport reports whether a repeated error must be reported: after the delay, and then once per listReportPeriod.
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
