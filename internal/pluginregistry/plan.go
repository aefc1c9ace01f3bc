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

// socketID identifies a socket file, to detect that a new socket has replaced it at its path. The zero value means no socket.
type socketID struct {
	dev, ino uint64
	modTime  int64 // nanoseconds; chmod and connections do not change it
}

// step is an operation of the Watcher on the plugin at one socket path.
type step int

const (
	none step = iota
	register
	deregister
	cancel // the running step is no longer needed
)

// socket is the state of one socket path and of the registration of its plugin.
type socket struct {
	current socketID // socket that now is at the path
	target  socketID // socket to which the fields below apply

	running    step // step that is running
	canceled   bool
	registered bool
	ignored    bool // its plugin type has no handler
	plugin     Plugin

	failures  int
	notBefore time.Time // when registration is retried
}

// action is a step to start now, with the path of its socket.
type action struct {
	path string
	step step
}

// retryPolicy returns the back-off between attempts to register a plugin. The delays are those of the kubelet. Source:
// pkg/util/goroutinemap/exponentialbackoff.
func retryPolicy() backoff.Policy {
	return backoff.Policy{First: 500 * time.Millisecond, Max: 2*time.Minute + 2*time.Second}
}

// sockets maps each socket path to its state.
type sockets map[string]*socket

// setFound stores the sockets that the directory contains. found maps the path of each socket to its ID.
func (s sockets) setFound(found map[string]socketID, now time.Time) {
	for path, id := range found {
		k := s[path]
		if k == nil {
			k = &socket{}
			s[path] = k
		}
		if k.current != id && k.failures > 0 { // the new plugin may succeed
			k.failures = 1
			k.notBefore = sleep.Earlier(k.notBefore, now.Add(retryPolicy().First))
		}
		k.current = id
	}
	for path, k := range s {
		if _, ok := found[path]; !ok {
			k.current = socketID{}
		}
	}
}

// planSteps returns the steps to start now, and the time of the next one or zero.
func (s sockets) planSteps(now time.Time) (actions []action, wake time.Time) {
	for _, path := range slices.Sorted(maps.Keys(s)) {
		k := s[path]
		switch step, at := k.nextStep(); {
		case step == none && k.running == none && k.current == socketID{}:
			// The socket no longer exists and needs no step.
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

func (k *socket) nextStep() (step, time.Time) {
	switch {
	case k.running == register && k.target != k.current && !k.canceled:
		return cancel, time.Time{}
	case k.running != none:
		return none, time.Time{}
	case k.registered && k.target != k.current:
		return deregister, time.Time{}
	case k.registered || k.current == socketID{} || k.ignored && k.target == k.current:
		return none, time.Time{}
	}
	return register, k.notBefore
}

// startStep records that the step next of this socket has started, for example a registration.
func (k *socket) startStep(next step) {
	if next == cancel {
		k.canceled = true
		return
	}
	k.running, k.canceled = next, false
	if next == register {
		k.target, k.ignored = k.current, false
	}
}

// finishStep stores the result of a step. ignored means that no handler exists for the type of the plugin.
func (k *socket) finishStep(plugin Plugin, ignored bool, err error, now time.Time) {
	s, canceled := k.running, k.canceled
	k.running, k.canceled, k.registered = none, false, false
	switch {
	case s == deregister:
		k.plugin = Plugin{}
	case err != nil && canceled: // a replacement starts without back-off
		return
	case err != nil:
		k.failures++
		k.notBefore = now.Add(retryPolicy().After(k.failures))
		return
	default:
		k.ignored, k.registered, k.plugin = ignored, !ignored, plugin
	}
	k.failures, k.notBefore = 0, time.Time{}
}
