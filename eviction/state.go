// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"slices"
	"time"
)

// State is the memory of [Policy.Decide] between decisions. The zero value is the state of an agent that has just started. It is
// immutable: methods return the next state.
type State struct {
	samples        [numSignals]readingSample // last reading of each signal, by signal index
	met            []metThreshold            // thresholds that are met
	conditions     [numConditions]time.Time  // when a threshold of each condition was last met; zero: never
	victims        []victim                  // pods that are being evicted
	reclaims       [numReclaims]reclaimState // last reclaim of memory, of disk space and of inodes
	storageChecked time.Time                 // last measurement for limits of local storage
}

// metThreshold is a threshold that is met, and the time since when it is.
type metThreshold struct {
	threshold Threshold
	since     time.Time
	due       bool // it was met for its grace period; it then stays met until its minimum reclaim is available
}

// victim records a pod whose eviction has started, until it has terminated or the record expires.
type victim struct {
	uid      string
	deadline time.Time // no other pod is evicted before this time; zero: the victim blocks no eviction
	expires  time.Time // when this record is dropped
	adopted  bool      // the eviction was started elsewhere: Candidate.Evicting shows when it has ended
	kill     time.Time // when an adopted pod is killed; zero: never, or already done
}

// reclaimState records the last reclaim of one resource: memory, disk space or inodes.
type reclaimState struct {
	signal        Signal
	kind          ReclaimKind // kinds reclaimed since the last eviction or since the threshold was met
	begun         time.Time   // zero: none started
	ended         time.Time   // zero: running
	freed         int64       // in the unit of signal
	noVictimSince time.Time   // since when there is no pod to evict after the reclaim; zero: there is one
}

// isRunning reports whether the reclaim is running at now. It returns false for a reclaim that has exceeded its timeout.
func (r reclaimState) isRunning(now time.Time) bool {
	return !r.begun.IsZero() && r.ended.IsZero() && now.Before(r.deadline())
}

func (r reclaimState) deadline() time.Time {
	if r.kind == ReclaimCache {
		return r.begun.Add(cacheTimeout)
	}
	return r.begun.Add(reclaimTimeout)
}

// numReclaims is the number of resources that are reclaimed independently.
const numReclaims = 3

// reclaimIndex returns the index in State.reclaims of the resource that s measures. It returns -1 if this resource cannot be
// reclaimed.
func (s Signal) reclaimIndex() int {
	switch s.Resource() {
	case Memory:
		return 0
	case EphemeralStorage:
		return 1
	case Inodes:
		return 2
	default:
		return -1
	}
}

// withReclaimStarted returns the state and the reclaim with now as the start of the reclaim, from which its timeout counts.
func (s State) withReclaimStarted(reclaim Reclaim, now time.Time) (State, Reclaim) {
	if s.isCurrent(reclaim) {
		reclaim.begun = now
		s.reclaims[reclaim.Signal.reclaimIndex()].begun = now
	}
	return s, reclaim
}

// isCurrent reports whether reclaim is the last reclaim that was started for its resource.
func (s State) isCurrent(reclaim Reclaim) bool {
	i := reclaim.Signal.reclaimIndex()
	return i >= 0 && !reclaim.begun.IsZero() && s.reclaims[i].begun.Equal(reclaim.begun)
}

// Reclaimed returns the state after reclaim has ended and freed an amount, in bytes or inodes. The next decision needs an
// observation made after now. If the same resource is already reclaimed again, the state does not change.
func (s State) Reclaimed(reclaim Reclaim, freed int64, now time.Time) State {
	if i := reclaim.Signal.reclaimIndex(); s.isCurrent(reclaim) {
		s.reclaims[i].ended, s.reclaims[i].freed = now, freed
	}
	return s
}

// IsCalm reports whether no threshold is met at the time now, no condition is true, and no eviction or reclaim is recorded. Every later
// decision is then the same, as long as the signals do not change.
func (s State) IsCalm(p *Policy, now time.Time) bool {
	return len(s.met) == 0 && len(s.victims) == 0 && len(s.Conditions(p, now)) == 0 && s.reclaims == [numReclaims]reclaimState{}
}

// Evicted returns the state after the pod with this UID has terminated.
func (s State) Evicted(uid string) State {
	s.victims = slices.DeleteFunc(slices.Clone(s.victims), func(v victim) bool { return v.uid == uid })
	return s
}

// withAbandoned returns a state in which the eviction of the pod no longer blocks other evictions. The pod is not selected
// again before the time until.
func (s State) withAbandoned(uid string, until time.Time) State {
	s.victims = slices.Clone(s.victims)
	for i := range s.victims {
		v := &s.victims[i]
		switch {
		case v.uid != uid:
		case v.deadline.IsZero() && v.expires.After(until):
		default:
			v.deadline, v.expires = time.Time{}, until
		}
	}
	return s
}

const (
	// forgetAfter is how long a pod is not selected again after a timeout or a kill without the runtime.
	forgetAfter = 5 * time.Minute
	// retryAfter is how long a pod is not selected again after a failed eviction.
	retryAfter = 10 * time.Second
)

// withVictim returns a state with the pod as a victim. Until the deadline, no other pod is evicted while the victim runs.
func (s State) withVictim(uid string, deadline time.Time) State {
	s.victims = append(slices.Clone(s.victims), victim{uid: uid, deadline: deadline, expires: deadline.Add(forgetAfter)})
	return s
}

// withAdopted returns a state with a victim whose eviction a previous process has started.
func (s State) withAdopted(uid string, deadline time.Time) State {
	s = s.withVictim(uid, deadline)
	v := &s.victims[len(s.victims)-1]
	// The evictor kills the pod if it still runs at this time.
	v.adopted, v.kill = true, deadline.Add(-cleanupTimeout)
	return s
}

// withKillStarted returns the state in which the adopted victim with this UID is being killed, so that it is not killed
// again. The eviction of an adopted victim was started elsewhere.
func (s State) withKillStarted(uid string) State {
	s.victims = slices.Clone(s.victims)
	for i := range s.victims {
		if s.victims[i].uid == uid {
			s.victims[i].kill = time.Time{}
		}
	}
	return s
}

// isVictim reports whether the eviction of the pod has started and is still recorded.
func (s State) isVictim(uid string) bool {
	return slices.ContainsFunc(s.victims, func(v victim) bool { return v.uid == uid })
}

// blockedUntil returns the time until which no other pod is evicted: the latest deadline of all victims, or zero.
func (s State) blockedUntil() (until time.Time) {
	for _, v := range s.victims {
		if v.deadline.After(until) {
			until = v.deadline
		}
	}
	return until
}

// dropExpired removes expired victims, and replaces recorded times in the future by now.
func (s State) dropExpired(now time.Time) State {
	if slices.ContainsFunc(s.victims, func(v victim) bool { return !v.expires.After(now) }) {
		s.victims = slices.DeleteFunc(slices.Clone(s.victims), func(v victim) bool { return !v.expires.After(now) })
	}
	// A time in the future shows that the clock was set back.
	for i := range s.conditions {
		s.conditions[i] = notAfter(s.conditions[i], now)
	}
	s.storageChecked = notAfter(s.storageChecked, now)
	return s
}

// notAfter returns the earlier of t and now.
func notAfter(t, now time.Time) time.Time {
	if t.After(now) {
		return now
	}
	return t
}
