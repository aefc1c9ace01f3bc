// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/lifecycle/resize"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// told is what a worker lets others know of its pod.
type told struct {
	activeChanged func() // called when the pod may have begun or ceased to be one of Active, or its allocation has changed

	mu        sync.Mutex         // guards all below
	shown     *corev1.PodStatus  // as others were told it last; nil: nothing yet
	allocated *resize.Allocation // to the pod; nil: what its spec asks for
	admitted  admission
	trouble   error // what failed last; nil once it works
}

// status returns the status of the pod as others were told it last, or nil.
func (t *told) status() *corev1.PodStatus {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.shown
}

// setStatus notes the status of the pod as others are told it.
func (t *told) setStatus(shown *corev1.PodStatus) {
	t.mu.Lock()
	t.shown = shown
	t.mu.Unlock()
	t.activeChanged()
}

// isTerminal reports whether the pod has terminated, nothing of it runs, and it will not start again.
func (t *told) isTerminal() bool {
	st := t.status()
	return st != nil && podstatus.Terminal(st.Phase)
}

// admission returns what is known of whether the pod may run.
func (t *told) admission() admission {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.admitted
}

// setAdmission notes whether the pod may run.
func (t *told) setAdmission(a admission) {
	t.mu.Lock()
	t.admitted = a
	t.mu.Unlock()
	t.activeChanged()
}

// counts reports whether the resources of the pod are not others' to have.
func (t *told) counts() bool { return t.admission() != admissionPending && !t.isTerminal() }

// setAllocated notes what is allocated to the pod.
func (t *told) setAllocated(a *resize.Allocation) {
	t.mu.Lock()
	t.allocated = a
	t.mu.Unlock()
	t.activeChanged()
}

// allocation returns what is allocated to the pod, or nil.
func (t *told) allocation() *resize.Allocation {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.allocated
}

// setTrouble notes what failed last, or, without an error, that nothing did.
func (t *told) setTrouble(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.trouble = err
}

// lastTrouble returns what failed last, or nil.
func (t *told) lastTrouble() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.trouble
}
