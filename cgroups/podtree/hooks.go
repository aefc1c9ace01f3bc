// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podtree

import (
	"time"

	"github.com/seed81659283/nodeagent/cgroups"
)

// Hooks are called where a [Tree] does something, with no lock held. They must be quick. Any may be nil.
type Hooks struct {
	// CgroupWritten is called after each call to the writer (kubelet_cgroup_manager_duration_seconds).
	CgroupWritten func(WriterCall)
	// LimitsEnforced is called when the limits of kubepods or of a reserved cgroup come into force, or are refused for
	// another reason than the last time (the events SuccessfulNodeAllocatableEnforcement and
	// FailedNodeAllocatableEnforcement).
	LimitsEnforced func(p cgroups.Path, err error)
	// MemoryProtected is called when the memory that is kept for pods changes, in bytes: for Guaranteed pods
	// (kubelet_memory_qos_node_memory_min_bytes) and for Burstable pods (kubelet_memory_qos_node_memory_low_bytes).
	MemoryProtected func(guaranteed, burstable int64)
	// OrphanProcessed is called when the cgroup of an orphaned pod was removed, was shrunk because of its volumes, or was not.
	OrphanProcessed func(Orphan)
	// PodResized is called after each [Tree.Resize] (kubelet_pod_resize_duration_milliseconds).
	PodResized func(uid string, d time.Duration, err error)
}

// WriterCall is one call to the writer.
type WriterCall struct {
	Op       Op
	Path     cgroups.Path
	Duration time.Duration
	Err      error
}

// Op is what was asked of the writer.
type Op string

// The operations, in the words of the kubelet's metric.
const (
	OpCreate  Op = "create"
	OpUpdate  Op = "update"
	OpDestroy Op = "destroy"
)

// Status is what a [Tree] knows of its cgroups.
type Status struct {
	// Ready says that Setup has succeeded.
	Ready bool
	// Cgroups is how the last write to kubepods, to the cgroups of the classes and to the reserved cgroups went, in
	// the order in which they are written.
	Cgroups []WriteResult
	// Orphans is the cgroups without a pod that are still there, sorted by path.
	Orphans []Orphan
	// OrphanErr is why orphans could not be looked for the last time.
	OrphanErr error
}

// WriteResult is how the last write to a cgroup went.
type WriteResult struct {
	Path  cgroups.Path
	Err   error     // nil: its limits are in force
	Since time.Time // when it began to be so
}

// Orphan is the cgroup of an orphaned pod, of which nothing runs and nothing is about to run.
type Orphan struct {
	UID      string
	Path     cgroups.Path
	Volumes  bool      // it waits for volumes to be unmounted, with the least CPU shares
	Failures int       // how often in a row it could not be removed
	Err      error     // of the last time
	Retry    time.Time // when it is tried again
}
