// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package heartbeat

import (
	"context"
	"errors"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
)

// Handle has the Node object of a Reporter that is created later: for the parts of an agent that the options of the Reporter refer to, and that
// need the Node themselves, such as an evictor. Until Set is called the Node is empty. The zero value is ready; it must not be copied.
type Handle struct {
	// Initial are the allocatable resources until the Reporter has computed a status. It must not be changed after the first call of a method.
	Initial corev1.ResourceList

	reporter atomic.Pointer[Reporter]
}

var errNoReporter = errors.New("the node is not reported yet: Handle.Set was not called")

// Set sets the Reporter.
func (h *Handle) Set(r *Reporter) { h.reporter.Store(r) }

// Node is [Reporter.Node].
func (h *Handle) Node() *corev1.Node {
	if r := h.reporter.Load(); r != nil {
		return r.Node()
	}
	return &corev1.Node{}
}

// Allocatable returns the allocatable resources of the Node object, as its status was last computed, and else Initial, like getNodeAnyWay of the
// kubelet.
func (h *Handle) Allocatable() corev1.ResourceList {
	list := h.Node().Status.Allocatable
	if _, computed := list[corev1.ResourceCPU]; computed {
		return list
	}
	return h.Initial
}

// Changed is [Reporter.Changed]. Before Set it does nothing.
func (h *Handle) Changed() {
	if r := h.reporter.Load(); r != nil {
		r.Changed()
	}
}

// Report is [Reporter.Report]. Before Set it returns an error.
func (h *Handle) Report(ctx context.Context) error {
	if r := h.reporter.Load(); r != nil {
		return r.Report(ctx)
	}
	return errNoReporter
}

// WaitRegistered is [Reporter.WaitRegistered]. Before Set it returns an error.
func (h *Handle) WaitRegistered(ctx context.Context) error {
	if r := h.reporter.Load(); r != nil {
		return r.WaitRegistered(ctx)
	}
	return errNoReporter
}
