// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"math"
	"time"
)

// Candidate is a pod that might be evicted, and what it uses. It is not changed by anything here.
type Candidate struct {
	UID  string
	Name string // for people, such as "namespace/name"

	Priority int32
	Critical bool // it is never evicted
	// Evicting says that it still runs and is being evicted, for example by an agent before this one: no other pod is until it is
	// gone, or the time is up that an eviction takes at most.
	Evicting bool
	// GracePeriod is how long the pod wants to have to terminate, where HasGracePeriod says so.
	GracePeriod    time.Duration
	HasGracePeriod bool

	Measured       bool  // what follows was measured; where it was not, the pod is the first to be evicted, as in the kubelet
	Memory         int64 // bytes in its working set
	Swap           int64 // bytes of it that are swapped out
	MemoryRequest  int64
	Tasks          int64 // threads of all its processes
	Rootfs         Usage // of the writable layers of its containers
	Logs           Usage // of their logs
	Volumes        Usage // of its volumes on local disks
	StorageRequest int64 // of ephemeral-storage, in bytes

	ExceededLimit *ExceededLimit // a limit of local storage that it exceeds; nil: none
}

// Usage is what is used of a filesystem.
type Usage struct {
	Bytes  int64
	Inodes int64
}

// ExceededLimit says which limit of local storage a pod exceeds. A pod that does is evicted although the node is short of nothing.
type ExceededLimit struct {
	Signal  Signal // EmptyDirLimit, PodLimit or ContainerLimit
	Message string // the whole message of the eviction
}

// disk returns what a pod uses of a filesystem: inodes or bytes.
func (c *Candidate) disk(p parts, inodes bool) (used int64) {
	add := func(counts bool, u Usage) {
		switch {
		case !counts:
		case inodes:
			used = addUp(used, u.Inodes)
		default:
			used = addUp(used, u.Bytes)
		}
	}
	add(p.rootfs, c.Rootfs)
	add(p.logs, c.Logs)
	add(p.volumes, c.Volumes)
	return used
}

// addUp adds two numbers; a sum that is too large for an int64 is the largest or the smallest.
func addUp(a, b int64) int64 {
	switch sum := a + b; {
	case a > 0 && b > 0 && sum < 0:
		return math.MaxInt64
	case a < 0 && b < 0 && sum >= 0:
		return math.MinInt64
	default:
		return sum
	}
}
