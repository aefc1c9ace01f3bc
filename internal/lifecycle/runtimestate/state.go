// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package runtimestate

import (
	"maps"
	"slices"
	"time"
)

// state is the cached readiness of the pod network. It reads no clock and has no lock.
type state struct {
	updatedAt    time.Time // time of the last status; zero: none
	err          error     // of the last status: why the network is not ready; nil: ready
	unresponsive bool      // the last call failed or timed out: no caller waits for the next one

	waiting map[string]time.Time // by pod UID: time of the last call of CheckNetwork
}

// isStale reports whether the cached status is missing or older than freshPeriod.
func (s *state) isStale(now time.Time) bool {
	return s.updatedAt.IsZero() || now.Sub(s.updatedAt) >= freshPeriod
}

// checkPod returns an error if the pod network is not ready, and records that the pod with this UID waits for it. If the
// last status is older than notReadyPeriod, checkPod returns nil and records nothing.
func (s *state) checkPod(uid string, now time.Time) error {
	if s.err == nil || now.Sub(s.updatedAt) >= notReadyPeriod {
		return nil
	}
	if s.waiting == nil {
		s.waiting = map[string]time.Time{}
	}
	s.waiting[uid] = now
	return s.err
}

// recordStatus stores err, the reason why the pod network is not ready, or nil if it is ready. If the network is ready, it
// returns the UIDs of the pods that waited, and clears the list of waiting pods.
func (s *state) recordStatus(err error, now time.Time) (ready []string) {
	s.updatedAt, s.err, s.unresponsive = now, err, false
	if err == nil {
		ready = slices.Sorted(maps.Keys(s.waiting))
		clear(s.waiting)
	}
	return ready
}

// hasWaitingPods reports whether pods wait for the network. A pod waits no longer if it has not called CheckNetwork for
// waitingPeriod, and is removed from the list.
func (s *state) hasWaitingPods(now time.Time) bool {
	maps.DeleteFunc(s.waiting, func(_ string, asked time.Time) bool { return now.Sub(asked) >= waitingPeriod })
	return len(s.waiting) > 0
}
