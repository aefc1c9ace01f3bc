// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"math"
	"time"
)

// Candidate is a pod that may be evicted, with its usage. The package does not modify it.
type Candidate struct {
	UID  string
	Name string // for logs and messages, for example "namespace/name"

	Priority int32
	Critical bool // never evicted
	// Evicting means that the eviction of the pod has started and the pod still runs, for example after a restart of the agent.
	// No other pod is evicted until this pod has terminated or its eviction times out.
	Evicting bool
	// GracePeriod is terminationGracePeriodSeconds of the pod, if HasGracePeriod is true.
	GracePeriod    time.Duration
	HasGracePeriod bool

	Measured       bool  // the fields below were measured; an unmeasured pod is evicted first, as in the kubelet
	Memory         int64 // working set in bytes
	Swap           int64 // swapped memory in bytes, not included in Memory
	MemoryRequest  int64 // bytes
	Tasks          int64 // threads of all its processes
	Rootfs         Usage // writable layers of its containers
	Logs           Usage // logs of its containers
	Volumes        Usage // its volumes on local disks
	StorageRequest int64 // request of ephemeral-storage in bytes

	ExceededLimit *ExceededLimit // limit of local storage that the pod exceeds; nil: none
}

// Usage is what a pod uses of a filesystem.
type Usage struct {
	Bytes  int64
	Inodes int64
}

// ExceededLimit is a limit of local storage that a pod exceeds. Such a pod is evicted even without pressure on the node.
type ExceededLimit struct {
	Signal  Signal // EmptyDirLimit, PodLimit or ContainerLimit
	Message string // complete eviction message
}

// diskUsage returns the pod's usage of the selected parts of its local storage, in bytes or inodes.
func (c *Candidate) diskUsage(parts storageParts, inodes bool) (used int64) {
	add := func(counts bool, u Usage) {
		switch {
		case !counts:
		case inodes:
			used = addSaturated(used, u.Inodes)
		default:
			used = addSaturated(used, u.Bytes)
		}
	}
	add(parts.rootfs, c.Rootfs)
	add(parts.logs, c.Logs)
	add(parts.volumes, c.Volumes)
	return used
}

// addSaturated returns a+b, limited to the range of an int64.
func addSaturated(a, b int64) int64 {
	switch sum := a + b; {
	case a > 0 && b > 0 && sum < 0:
		return math.MaxInt64
	case a < 0 && b < 0 && sum >= 0:
		return math.MinInt64
	default:
		return sum
	}
}
