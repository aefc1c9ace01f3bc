// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package heartbeat

import (
	"context"
	"errors"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
)

// Handle gives access to a [Reporter] that is created later. Use it for sources of the Reporter that need the Node themselves,
// such as an evictor. The zero value is ready for use. It must not be copied.
type Handle struct {
	// Initial is returned by Allocatable, and is in the Node, until the Reporter has computed a status. It must not be modified
	// after the first call of a method.
	Initial corev1.ResourceList

	reporter atomic.Pointer[Reporter]
}

var errNoReporter = errors.New("the node is not reported yet: Handle.Set was not called")

// Set sets the Reporter that the other methods of the Handle call. It may be called while they run.
func (h *Handle) Set(reporter *Reporter) { h.reporter.Store(reporter) }

// Node returns the current Node as [Reporter.Node] does, or an empty Node before Set is called. Until the Reporter has computed a
// status, its allocatable resources are h.Initial, like in getNodeAnyWay of the kubelet: static pods are admitted that early.
func (h *Handle) Node() *corev1.Node {
	node := &corev1.Node{}
	if r := h.reporter.Load(); r != nil {
		node = r.Node()
	}
	if _, computed := node.Status.Allocatable[corev1.ResourceCPU]; computed || h.Initial == nil {
		return node
	}
	initial := *node // node itself is shared
	initial.Status.Allocatable = h.Initial
	return &initial
}

// Allocatable returns the allocatable resources of [Handle.Node].
func (h *Handle) Allocatable() corev1.ResourceList { return h.Node().Status.Allocatable }

// HasCapacity reports whether the capacity of the Node contains the resource of this name.
func (h *Handle) HasCapacity(resource string) bool {
	_, found := h.Node().Status.Capacity[corev1.ResourceName(resource)]
	return found
}

// Changed makes the Reporter compute and report the node status soon; see [Reporter.Changed]. Before Set is called, it does
// nothing.
func (h *Handle) Changed() {
	if r := h.reporter.Load(); r != nil {
		r.Changed()
	}
}

// Report sends the current node status to the API server; see [Reporter.Report]. Before Set is called, it returns an error.
func (h *Handle) Report(ctx context.Context) error {
	if r := h.reporter.Load(); r != nil {
		return r.Report(ctx)
	}
	return errNoReporter
}

// WaitRegistered blocks until the Node exists at the API server; see [Reporter.WaitRegistered]. Before Set is called, it
// returns an error.
func (h *Handle) WaitRegistered(ctx context.Context) error {
	if r := h.reporter.Load(); r != nil {
		return r.WaitRegistered(ctx)
	}
	return errNoReporter
}
