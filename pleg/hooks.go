// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"time"

	"github.com/seed81659283/nodeagent/cri"
)

// Hooks are called as a [Generator] works, mostly to feed metrics. Any may be nil. They must be quick and must
// not wait for the generator. The kubelet's counter of discarded events has no hook: nothing is discarded.
type Hooks struct {
	// Relisted is called after each full relist, from Run's goroutine (kubelet_pleg_relist_duration_seconds,
	// kubelet_pleg_relist_interval_seconds, kubelet_pleg_last_seen_seconds).
	Relisted func(Relist)
	// PodRelisted is called after each try to bring one pod up to date, from Run's goroutine
	// (kubelet_pleg_pod_relist_duration_seconds counts those that are Single).
	PodRelisted func(PodRelist)
	// Counted is called with each full relist that succeeds, from Run's goroutine (kubelet_running_pods,
	// kubelet_running_containers).
	RunningCounted func(RunningCount)
	// StreamConnected is called when the event stream is first known to work: it has delivered an event or has
	// lived for half a second (kubelet_evented_pleg_connection_success_count).
	StreamConnected func()
	// StreamFailed is called when the event stream ends (kubelet_evented_pleg_connection_error_count).
	StreamFailed func(error)
	// StreamEvent is called with each event of the stream and the time it took from the runtime to here
	// (kubelet_evented_pleg_connection_latency_seconds).
	StreamEvent func(e cri.Event, latency time.Duration)
}

// Relist is one full relist.
type Relist struct {
	Start    time.Time
	Interval time.Duration // since the start of the last one that succeeded; zero for the first
	Duration time.Duration // of the listing and its evaluation; pods are inspected after it
	Err      error         // the list could not be had
}

// PodRelist is one try to bring a pod up to date.
type PodRelist struct {
	PodUID      string
	Start       time.Time
	Duration    time.Duration
	ListedAlone bool // the pod was listed alone; else a full relist saw a change
	Err         error
}

// Count is how much there is of what on the node.
type RunningCount struct {
	Pods       int    // with a ready sandbox
	Containers [4]int // by [cri.ContainerState]
}
