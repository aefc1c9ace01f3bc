// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"errors"
	"maps"
	"sync"

	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// WaitingReasons holds, by container name, the reason for which a container of a pod is not started. Its methods are safe for
// concurrent use.
type WaitingReasons struct {
	mu      sync.Mutex // guards reasons
	reasons map[string]podstatus.Waiting
}

// Get returns a copy of the waiting reasons by container name.
func (w *WaitingReasons) Get() map[string]podstatus.Waiting {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.reasons)
}

// Replace replaces the waiting reasons of all containers. The keys of reasons are container names. The caller must not
// modify reasons afterwards.
func (w *WaitingReasons) Replace(reasons map[string]podstatus.Waiting) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reasons = reasons
}

// setError stores err, which may be a StartError with its own reason, as the waiting reason. A nil err removes it.
func (w *WaitingReasons) setError(container, reason string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		delete(w.reasons, container)
		return
	}
	why := podstatus.Waiting{Reason: reason, Message: err.Error()}
	if se, ok := errors.AsType[*podstatus.StartError](err); ok {
		why = podstatus.Waiting{Reason: se.Reason, Message: se.Err.Error()}
	}
	w.storeReason(container, why)
}

// SetReason stores reason as the waiting reason of the container with this name.
func (w *WaitingReasons) SetReason(name string, reason podstatus.Waiting) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.storeReason(name, reason)
}

// storeReason does the work of SetReason. w.mu is held.
func (w *WaitingReasons) storeReason(name string, reason podstatus.Waiting) {
	if w.reasons == nil {
		w.reasons = map[string]podstatus.Waiting{}
	}
	w.reasons[name] = reason
}
