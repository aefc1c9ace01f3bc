// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package pluginregistry

import (
	"maps"
	"slices"
	"time"

	"github.com/seed81659283/nodeagent/internal/backoff"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

// identity tells a socket from the one that is made in its place. The zero value is that of none.
type identity struct {
	dev, ino uint64
	made     int64 // nanoseconds; neither a change of mode nor a connection touches it
}

// step is something that is done about a socket.
type step int

const (
	none step = iota
	register
	deregister
	cancel // the step under way has become pointless
)

// socket is what is known about a socket.
type socket struct {
	there identity // the one in the directory
	of    identity // the one that the rest is about

	doing      step // under way
	canceled   bool
	registered bool
	ignored    bool // it is a plugin of somebody else
	plugin     Plugin

	failures  int
	notBefore time.Time // when registration is tried again
}

// action is a step to begin, or to end.
type action struct {
	path string
	step step
}

// policy is how long a socket is left alone after a failure (pkg/util/goroutinemap/exponentialbackoff).
func policy() backoff.Policy {
	return backoff.Policy{First: 500 * time.Millisecond, Max: 2*time.Minute + 2*time.Second}
}

// state is all sockets by their paths.
type state map[string]*socket

// found notes which sockets there are.
func (s state) found(there map[string]identity, now time.Time) {
	for path, id := range there {
		k := s[path]
		if k == nil {
			k = &socket{}
			s[path] = k
		}
		if k.there != id && k.failures > 0 { // somebody else may do better
			k.failures = 1
			k.notBefore = sleep.Earlier(k.notBefore, now.Add(policy().First))
		}
		k.there = id
	}
	for path, k := range s {
		if _, ok := there[path]; !ok {
			k.there = identity{}
		}
	}
}

// plan returns what is to be done now, and when something is that is not yet. It forgets sockets of which nothing is left.
func (s state) plan(now time.Time) (actions []action, wake time.Time) {
	for _, path := range slices.Sorted(maps.Keys(s)) {
		k := s[path]
		switch step, at := k.next(); {
		case step == none && k.doing == none && k.there == identity{}:
			delete(s, path)
		case step == none:
		case at.After(now):
			wake = sleep.Earlier(wake, at)
		default:
			actions = append(actions, action{path, step})
		}
	}
	return actions, wake
}

func (k *socket) next() (step, time.Time) {
	switch {
	case k.doing == register && k.of != k.there && !k.canceled:
		return cancel, time.Time{}
	case k.doing != none:
		return none, time.Time{}
	case k.registered && k.of != k.there:
		return deregister, time.Time{}
	case k.registered || k.there == identity{} || k.ignored && k.of == k.there:
		return none, time.Time{}
	}
	return register, k.notBefore
}

// begin notes that a step has begun.
func (k *socket) begin(s step) {
	if s == cancel {
		k.canceled = true
		return
	}
	k.doing, k.canceled = s, false
	if s == register {
		k.of, k.ignored = k.there, false
	}
}

// end notes what has come of the step under way. A plugin of a type that nobody handles is ignored.
func (k *socket) end(p Plugin, ignored bool, err error, now time.Time) {
	s, canceled := k.doing, k.canceled
	k.doing, k.canceled, k.registered = none, false, false
	switch {
	case s == deregister:
		k.plugin = Plugin{}
	case err != nil && canceled: // the next one is somebody else
		return
	case err != nil:
		k.failures++
		k.notBefore = now.Add(policy().After(k.failures))
		return
	default:
		k.ignored, k.registered, k.plugin = ignored, !ignored, p
	}
	k.failures, k.notBefore = 0, time.Time{}
}
