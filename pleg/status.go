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

// Status is how a [Generator] does.
type Status struct {
	LastRelist time.Time     // when the last full relist that succeeded began; zero before the first
	ListErr    error         // why no full relist has succeeded since; nil if none has failed since
	Threshold  time.Duration // how old Relisted may be
	Streaming  bool          // the runtime's events are heard, full relists are rare
	Pods       []PodError    // the pods in trouble, by UID
}

// errNoRelist is why nothing is known at the beginning.
var errNeverRelisted = errors.New("relist: none has succeeded yet")

// healthy is [Generator.Healthy] at now.
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

// PodError says that a pod's state cannot be read from the runtime.
type PodError struct {
	PodUID string
	Call   string    // the runtime call that fails or hangs, with the object: "ContainerStatus c1"
	Since  time.Time // when the first try began that has not been followed by a good one
	Err    error     // why the last try ended; nil while the first one hangs
}

// Error names the pod, the time, the call and the cause.
func (e *PodError) Error() string {
	what := fmt.Sprintf("inspect pod %s, since %s: ", e.PodUID, e.Since.Format(time.RFC3339))
	if e.Err != nil {
		return what + e.Err.Error() // an error of a runtime names its call
	}
	return what + e.Call + ": no answer"
}

// Unwrap returns the cause, nil while the runtime has not answered.
func (e *PodError) Unwrap() error { return e.Err }

// health keeps what the runtime is asked about each pod, and what did not work.
type podHealth struct {
	mu       sync.Mutex // guards all fields
	relisted time.Time
	listErr  error // of the full relists since
	pods     map[string]*attempt
}

// attempt is work on a pod that is under way or has failed.
type attempt struct {
	started  time.Time // the last try
	since    time.Time // the first try of those that failed; zero if none has
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

// fail records that work on a pod has failed, and reports whether it is the first time in a row.
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

// succeed forgets about a pod, and reports whether it was in trouble.
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

// of returns the trouble of a pod, or nil.
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

func (h *podHealth) snapshot(now time.Time) (relisted time.Time, pods []PodError, listErr error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, uid := range slices.Sorted(maps.Keys(h.pods)) {
		if e := h.podErrorLocked(uid, now); e != nil {
			pods = append(pods, *e)
		}
	}
	return h.relisted, pods, h.listErr
}
