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

// checkPod returns an error if the pod network is not ready, and records that the pod waits for it.
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

// recordStatus stores err, nil for a ready network, and then returns the UIDs of the pods that waited.
func (s *state) recordStatus(err error, now time.Time) (ready []string) {
	s.updatedAt, s.err, s.unresponsive = now, err, false
	if err == nil {
		ready = slices.Sorted(maps.Keys(s.waiting))
		clear(s.waiting)
	}
	return ready
}

// hasWaitingPods reports whether pods wait for the network.
func (s *state) hasWaitingPods(now time.Time) bool {
	// A pod that no longer calls CheckNetwork does not wait.
	maps.DeleteFunc(s.waiting, func(_ string, asked time.Time) bool { return now.Sub(asked) >= waitingPeriod })
	return len(s.waiting) > 0
}
