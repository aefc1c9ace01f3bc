// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"errors"
	"maps"
	"sync"

	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// Waiting is why the containers of a pod that should run do not, by name.
type Waiting struct {
	mu      sync.Mutex // guards reasons
	reasons map[string]podstatus.Waiting
}

// Get returns a copy of all reasons.
func (w *Waiting) Get() map[string]podstatus.Waiting {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.reasons)
}

// Replace makes these the reasons.
func (w *Waiting) Replace(reasons map[string]podstatus.Waiting) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reasons = reasons
}

// setError notes why a container was not started, or, without an error, that it was.
func (w *Waiting) setError(name, reason string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		delete(w.reasons, name)
		return
	}
	why := podstatus.Waiting{Reason: reason, Message: err.Error()}
	if se, ok := errors.AsType[*podstatus.StartError](err); ok {
		why = podstatus.Waiting{Reason: se.Reason, Message: se.Err.Error()}
	}
	w.put(name, why)
}

// SetReason notes why a container is not started.
func (w *Waiting) SetReason(name string, why podstatus.Waiting) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.put(name, why)
}

// put notes a reason. The lock is held.
func (w *Waiting) put(name string, why podstatus.Waiting) {
	if w.reasons == nil {
		w.reasons = map[string]podstatus.Waiting{}
	}
	w.reasons[name] = why
}
