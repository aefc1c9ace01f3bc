// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/cri"
)

// Status is the health of a [Generator].
type Status struct {
	LastRelist time.Time     // start of the last successful full relist; zero: none yet
	ListErr    error         // error of the full relists since LastRelist; nil: none has failed
	Threshold  time.Duration // greatest healthy age of LastRelist: Options.Threshold
	Streaming  bool          // runtime events are received, so full relists are rare
	Pods       []PodError    // pods whose inspection fails or hangs, sorted by UID
}

// errNeverRelisted is the error of Healthy and Pods before the first successful full relist.
var errNeverRelisted = errors.New("relist: none has succeeded yet")

// checkHealth returns the result of [Generator.Healthy] for this status.
func (s Status) checkHealth(now time.Time) error {
	age := now.Sub(s.LastRelist)
	switch {
	case errors.Is(s.ListErr, cri.ErrTooLarge):
		return fmt.Errorf("relist: %w", s.ListErr)
	case s.LastRelist.IsZero() && s.ListErr != nil:
		return fmt.Errorf("%w: %w", errNeverRelisted, s.ListErr)
	case s.LastRelist.IsZero():
		return errNeverRelisted
	case age > s.Threshold && s.ListErr != nil:
		return fmt.Errorf("relist: the last success was %v ago, the limit is %v: %w", age, s.Threshold, s.ListErr)
	case age > s.Threshold:
		return fmt.Errorf("relist: the last success was %v ago, the limit is %v", age, s.Threshold)
	}
	return nil
}

// PodError reports that the runtime calls to inspect a pod fail or hang.
type PodError struct {
	PodUID string
	Call   string    // the failing or hung runtime call and its object: "ContainerStatus c1"
	Since  time.Time // start of the first attempt after the last success
	Err    error     // error of the last attempt; nil: the first attempt hangs
}

// Error returns a text with the pod, the time of the first failure, the failed call and its error.
func (e *PodError) Error() string {
	what := fmt.Sprintf("inspect pod %s, since %s: ", e.PodUID, e.Since.Format(time.RFC3339))
	if e.Err != nil {
		return what + e.Err.Error() // an error of a runtime names its call
	}
	return what + e.Call + ": no answer"
}

// Unwrap returns Err. While the first inspection hangs, Err is nil, because no call has failed yet.
func (e *PodError) Unwrap() error { return e.Err }

// podHealth records the running runtime call and the errors of each pod, and the error of the full relists.
type podHealth struct {
	mu       sync.Mutex // guards all fields
	relisted time.Time
	listErr  error // of the full relists after relisted
	pods     map[string]*attempt
}

// attempt is a running or failed inspection of a pod.
type attempt struct {
	started  time.Time // start of the last attempt
	since    time.Time // start of the first failed attempt in a row; zero: none failed
	call, id string
	err      error
}

func (h *podHealth) startAttempt(uid string, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	a, ok := h.pods[uid]
	if !ok {
		a = new(attempt)
		h.pods[uid] = a
	}
	a.started = now
}

func (h *podHealth) setCall(uid, call, id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if a, ok := h.pods[uid]; ok {
		a.call, a.id = call, id
	}
}

// recordFailure stores the error of the last inspection of a pod. It reports whether the previous inspection succeeded.
func (h *podHealth) recordFailure(uid string, err error) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	a, ok := h.pods[uid]
	if !ok {
		return false
	}
	first := a.err == nil
	if first {
		a.since = a.started
	}
	a.err = err
	return first
}

// recordSuccess records that an inspection of a pod has succeeded. It reports whether the previous inspection failed.
func (h *podHealth) recordSuccess(uid string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	a, ok := h.pods[uid]
	delete(h.pods, uid)
	return ok && a.err != nil
}

func (h *podHealth) setRelisted(t time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.relisted, h.listErr = t, nil
}

func (h *podHealth) recordListError(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.listErr = err
}

// podError returns an error if the last inspection of the pod with this UID failed, or if its current inspection hangs.
// Otherwise it returns nil.
func (h *podHealth) podError(uid string, now time.Time) *PodError {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.podErrorLocked(uid, now)
}

func (h *podHealth) podErrorLocked(uid string, now time.Time) *PodError {
	a, ok := h.pods[uid]
	if !ok || a.err == nil && now.Sub(a.started) < slowAfter {
		return nil
	}
	since := a.since
	if a.err == nil {
		since = a.started
	}
	return &PodError{PodUID: uid, Call: a.call + " " + a.id, Since: since, Err: a.err}
}

func (h *podHealth) listErrors(now time.Time) (relisted time.Time, pods []PodError, listErr error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, uid := range slices.Sorted(maps.Keys(h.pods)) {
		if e := h.podErrorLocked(uid, now); e != nil {
			pods = append(pods, *e)
		}
	}
	return h.relisted, pods, h.listErr
}
