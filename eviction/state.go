// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"slices"
	"time"
)

// State is what is known from the decisions before. The zero value is that of an agent that has just started. It is a value:
// nothing changes it, [Policy.Decide] and the methods return the next one.
type State struct {
	seen       [numSignals]sample       // the last reading of each signal
	met        []metThreshold           // thresholds that are met
	conditions [numConditions]time.Time // when a threshold of each condition was met last; zero: never
	victims    []victim                 // pods that are being evicted
	reclaims   [places]reclaimed        // the last Reclaim of memory, of disks and of inodes
	local      time.Time                // when pods were measured for their limits of local storage
}

// metThreshold is a threshold that is met.
type metThreshold struct {
	Threshold
	since time.Time
	due   bool // it was met for its grace period: it counts until its minimum reclaim is satisfied
}

// victim is a pod that is being evicted.
type victim struct {
	uid      string
	deadline time.Time // until then no other pod is evicted; zero: it does not hold up others
	expires  time.Time // then it is forgotten
	adopted  bool      // somebody else evicts it: candidates say when it is gone
	kill     time.Time // when it is killed that was adopted; zero: it is not, or was
}

// reclaimed is the last Reclaim.
type reclaimed struct {
	signal Signal
	kind   ReclaimKind // what was reclaimed since a pod was evicted or the threshold was met
	begun  time.Time   // zero: nothing was
	ended  time.Time   // zero: it has not
	freed  int64
	vain   time.Time // since when there is no pod to evict after it; zero: there was one
}

// running reports whether a Reclaim is under way that is to be waited for.
func (r reclaimed) running(now time.Time) bool {
	return !r.begun.IsZero() && r.ended.IsZero() && now.Before(r.deadline())
}

func (r reclaimed) deadline() time.Time {
	if r.kind == ReclaimCache {
		return r.begun.Add(cacheTimeout)
	}
	return r.begun.Add(reclaimTimeout)
}

// places is how many resources are reclaimed, each on its own.
const places = 3

// place returns which of State.reclaims is of a signal, or -1.
func (s Signal) place() int {
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

// started returns the state after a Reclaim was begun, and that Reclaim: its time is counted from then on, not from the decision.
func (s State) started(r Reclaim, now time.Time) (State, Reclaim) {
	if s.current(r) {
		r.begun = now
		s.reclaims[r.Signal.place()].begun = now
	}
	return s, r
}

// current reports whether a Reclaim is the last one of its resource, and counts.
func (s State) current(r Reclaim) bool {
	i := r.Signal.place()
	return i >= 0 && !r.begun.IsZero() && s.reclaims[i].begun.Equal(r.begun)
}

// Reclaimed returns the state after a [Reclaim] has ended, and how much it made free in the unit of its signal. One that
// another has followed counts nothing. The next decision needs an observation that began after that.
func (s State) Reclaimed(r Reclaim, freed int64, now time.Time) State {
	if i := r.Signal.place(); s.current(r) {
		s.reclaims[i].ended, s.reclaims[i].freed = now, freed
	}
	return s
}

// Evicted returns the state after a pod that was to be evicted is gone.
func (s State) Evicted(uid string) State {
	s.victims = slices.DeleteFunc(slices.Clone(s.victims), func(v victim) bool { return v.uid == uid })
	return s
}

// unblocked returns the state after a pod that was to be evicted holds up others no longer: its processes were killed although
// the runtime does not answer, or it could not be evicted. It is not chosen again before the time is reached; of several times the
// latest counts.
func (s State) unblocked(uid string, until time.Time) State {
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
	// forgetAfter is how long a pod is not chosen again that was not gone in its time, or was killed without the runtime.
	forgetAfter = 5 * time.Minute
	// retryAfter is the same for one that could not be evicted.
	retryAfter = 10 * time.Second
)

// withVictim adds a pod that is being evicted.
func (s State) withVictim(uid string, deadline time.Time) State {
	s.victims = append(slices.Clone(s.victims), victim{uid: uid, deadline: deadline, expires: deadline.Add(forgetAfter)})
	return s
}

// withAdopted adds a pod that somebody else evicts.
func (s State) withAdopted(uid string, deadline time.Time) State {
	s = s.withVictim(uid, deadline)
	v := &s.victims[len(s.victims)-1]
	v.adopted, v.kill = true, deadline.Add(-cleanupTimeout)
	return s
}

// killing returns the state after a pod that was adopted is to be killed.
func (s State) killing(uid string) State {
	s.victims = slices.Clone(s.victims)
	for i := range s.victims {
		if s.victims[i].uid == uid {
			s.victims[i].kill = time.Time{}
		}
	}
	return s
}

// victim reports whether a pod is being evicted.
func (s State) victim(uid string) bool {
	return slices.ContainsFunc(s.victims, func(v victim) bool { return v.uid == uid })
}

// blocked returns until when no other pod is evicted at the latest, or the zero time.
func (s State) blocked() (until time.Time) {
	for _, v := range s.victims {
		if v.deadline.After(until) {
			until = v.deadline
		}
	}
	return until
}

// expire forgets pods whose time is up, and mends times that are ahead of a clock that was set back.
func (s State) expire(now time.Time) State {
	if slices.ContainsFunc(s.victims, func(v victim) bool { return !v.expires.After(now) }) {
		s.victims = slices.DeleteFunc(slices.Clone(s.victims), func(v victim) bool { return !v.expires.After(now) })
	}
	for i := range s.conditions {
		s.conditions[i] = notAfter(s.conditions[i], now)
	}
	s.local = notAfter(s.local, now)
	return s
}

// notAfter returns the earlier of two times.
func notAfter(t, now time.Time) time.Time {
	if t.After(now) {
		return now
	}
	return t
}
