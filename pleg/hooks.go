// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"time"

	"github.com/seed81659283/nodeagent/cri"
)

// Hooks are called while a [Generator] runs, mostly to feed metrics. Each hook may be nil. Hooks must return quickly and must not
// wait for the generator.
type Hooks struct {
	// Relisted is called after each full relist, also a failed one, from Run's goroutine. It feeds
	// kubelet_pleg_relist_duration_seconds, kubelet_pleg_relist_interval_seconds and kubelet_pleg_last_seen_seconds.
	Relisted func(Relist)
	// PodRelisted is called after each attempt to list or inspect a single pod, from Run's goroutine.
	// kubelet_pleg_pod_relist_duration_seconds counts the reports with ListedAlone.
	PodRelisted func(PodRelist)
	// RunningCounted is called after each successful full relist, from Run's goroutine. It feeds kubelet_running_pods and
	// kubelet_running_containers.
	RunningCounted func(RunningCount)
	// StreamConnected is called when a connected event stream is assumed to work: after its first event, or 500 ms without an
	// error (kubelet_evented_pleg_connection_success_count).
	StreamConnected func()
	// StreamFailed is called with the cause when the event stream breaks (kubelet_evented_pleg_connection_error_count).
	StreamFailed func(error)
	// StreamEvent is called for each event of the stream. latency is the time since the runtime created the event
	// (kubelet_evented_pleg_connection_latency_seconds).
	StreamEvent func(e cri.Event, latency time.Duration)
}

// Relist describes one full relist, a list of all containers and sandboxes of the runtime.
type Relist struct {
	Start    time.Time
	Interval time.Duration // since the start of the last successful full relist; zero for the first
	Duration time.Duration // of the list call and its evaluation, without the inspections of pods that follow
	Err      error         // why the list call failed; nil: it succeeded
}

// PodRelist describes one attempt to update the cached state of one pod: by listing the pod alone, or by inspecting the pod as a
// full relist listed it.
type PodRelist struct {
	PodUID      string
	Start       time.Time
	Duration    time.Duration
	ListedAlone bool // the pod was listed alone; false: a full relist listed the pod
	Err         error
}

// RunningCount has the number of running pods, and of containers in each state, on the node.
type RunningCount struct {
	Pods       int    // with a ready sandbox
	Containers [4]int // by [cri.ContainerState]
}
