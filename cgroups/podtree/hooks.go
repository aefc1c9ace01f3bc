// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podtree

import (
	"time"

	"github.com/seed81659283/nodeagent/cgroups"
)

// Hooks are called by a [Tree] without locks held. They must return quickly. Each may be nil.
type Hooks struct {
	// CgroupWritten is called after each call of the driver (metric kubelet_cgroup_manager_duration_seconds).
	CgroupWritten func(WriterCall)
	// LimitsEnforced is called when the limits of kubepods or of a reserved cgroup come into force (nil error) and after each
	// failure (events SuccessfulNodeAllocatableEnforcement and FailedNodeAllocatableEnforcement).
	LimitsEnforced func(p cgroups.Path, err error)
	// MemoryProtected is called when the protected memory in bytes changes: of Guaranteed pods
	// (kubelet_memory_qos_node_memory_min_bytes) and of Burstable pods (kubelet_memory_qos_node_memory_low_bytes).
	MemoryProtected func(guaranteed, burstable int64)
	// OrphanProcessed is called after each attempt to remove the cgroup of an orphaned pod, or to lower its CPU shares while its
	// volumes are mounted.
	OrphanProcessed func(Orphan)
	// PodResized is called after each [Tree.Resize] (metric kubelet_pod_resize_duration_milliseconds).
	PodResized func(uid string, d time.Duration, err error)
}

// WriterCall describes one completed Apply or Remove of the cgroup driver.
type WriterCall struct {
	Op       Op
	Path     cgroups.Path
	Duration time.Duration
	Err      error
}

// Op is the operation of a [WriterCall].
type Op string

// Operations, named as in the kubelet's metric.
const (
	OpCreate  Op = "create"
	OpUpdate  Op = "update"
	OpDestroy Op = "destroy"
)

// Status is the state of a [Tree]: the results of its writes and the remaining orphaned cgroups.
type Status struct {
	// Ready reports that Setup has succeeded.
	Ready bool
	// Cgroups has the result of the last write to kubepods, the class cgroups and the reserved cgroups, in write order.
	Cgroups []WriteResult
	// Orphans lists the remaining cgroups of orphaned pods, sorted by path.
	Orphans []Orphan
	// OrphanErr is the error of the last search for orphans.
	OrphanErr error
}

// WriteResult is the result of the last write to a cgroup.
type WriteResult struct {
	Path  cgroups.Path
	Err   error     // nil: the limits are in force
	Since time.Time // when Err last changed to or from nil
}

// Orphan is the cgroup of an orphaned pod: no source lists the pod, and it neither runs nor may start.
type Orphan struct {
	UID      string
	Path     cgroups.Path
	Volumes  bool      // volumes are mounted: its CPU shares are lowered until they are unmounted
	Failures int       // failed removals in a row
	Err      error     // of the last attempt
	Retry    time.Time // time of the next attempt
}
