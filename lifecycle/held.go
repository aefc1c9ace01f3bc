// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"errors"
	"maps"
	"slices"
)

// Held says why a container that should run does not.
type Held struct{ Reason, Message string }

// hold notes which containers wait for their back-off. Of those that are not to be started nothing is said any more.
func (w *worker) hold(a *Actions) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.held, func(name string, h Held) bool {
		return h.Reason == ReasonCrashLoopBackOff ||
			!slices.ContainsFunc(a.Start, func(s Start) bool { return s.Container.Name == name })
	})
	for _, x := range a.Waiting {
		w.held[x.Name] = Held{Reason: ReasonCrashLoopBackOff, Message: x.Message}
	}
}

// holdFor notes why a container was not started, or, without an error, that it was.
func (w *worker) holdFor(name, reason string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		delete(w.held, name)
		return
	}
	held := Held{Reason: reason, Message: err.Error()}
	if se, ok := errors.AsType[*StartError](err); ok {
		held = Held{Reason: se.Reason, Message: se.Err.Error()}
	}
	w.held[name] = held
}

// holding returns a copy of what holds containers.
func (w *worker) holding() map[string]Held {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.held)
}
