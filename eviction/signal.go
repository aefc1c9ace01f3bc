// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package eviction

// Signal is what is measured of a node, or, for those of local storage limits, of a pod. The names are those of the
// kubelet's configuration and of its metrics.
type Signal string

// Signals that thresholds can be set for. Each says how much is left. Source: pkg/kubelet/eviction/api/types.go.
const (
	MemoryAvailable            Signal = "memory.available"            // bytes of the node that are not in a working set
	AllocatableMemoryAvailable Signal = "allocatableMemory.available" // the same of the cgroup of all pods
	NodeFSAvailable            Signal = "nodefs.available"            // bytes of the filesystem of volumes and logs
	NodeFSInodesFree           Signal = "nodefs.inodesFree"           // its inodes
	ImageFSAvailable           Signal = "imagefs.available"           // bytes of the filesystem of images
	ImageFSInodesFree          Signal = "imagefs.inodesFree"          // its inodes
	ContainerFSAvailable       Signal = "containerfs.available"       // bytes of the filesystem of writable layers
	ContainerFSInodesFree      Signal = "containerfs.inodesFree"      // its inodes
	PIDAvailable               Signal = "pid.available"               // process IDs
)

// Signals of pods that use more local storage than they may, which need no threshold. Source:
// pkg/kubelet/eviction/eviction_manager.go.
const (
	EmptyDirLimit  Signal = "emptydirfs.limit"           // the size limit of an emptyDir
	PodLimit       Signal = "ephemeralpodfs.limit"       // the limits of a pod
	ContainerLimit Signal = "ephemeralcontainerfs.limit" // the limit of a container
)

// numSignals is how many signals thresholds can be set for.
const numSignals = 9

// nodeSignals are the signals of thresholds in the order in which they are handled.
func nodeSignals() [numSignals]Signal {
	return [...]Signal{
		MemoryAvailable, AllocatableMemoryAvailable, NodeFSAvailable, NodeFSInodesFree,
		ImageFSAvailable, ImageFSInodesFree, ContainerFSAvailable, ContainerFSInodesFree, PIDAvailable,
	}
}

// index returns the place of the signal in nodeSignals, or -1.
func (s Signal) index() int {
	switch s {
	case MemoryAvailable:
		return 0
	case AllocatableMemoryAvailable:
		return 1
	case NodeFSAvailable:
		return 2
	case NodeFSInodesFree:
		return 3
	case ImageFSAvailable:
		return 4
	case ImageFSInodesFree:
		return 5
	case ContainerFSAvailable:
		return 6
	case ContainerFSInodesFree:
		return 7
	case PIDAvailable:
		return 8
	default:
		return -1
	}
}

// Resource is what a node is short of.
type Resource string

// Resources, by the names that events and messages have.
const (
	Memory           Resource = "memory"
	EphemeralStorage Resource = "ephemeral-storage"
	Inodes           Resource = "inodes"
	PIDs             Resource = "pids"
)

// Resource returns what the node is short of when a threshold of the signal is met. It is empty for a signal that no
// threshold can be set for.
func (s Signal) Resource() Resource {
	switch s {
	case MemoryAvailable, AllocatableMemoryAvailable:
		return Memory
	case NodeFSAvailable, ImageFSAvailable, ContainerFSAvailable:
		return EphemeralStorage
	case NodeFSInodesFree, ImageFSInodesFree, ContainerFSInodesFree:
		return Inodes
	case PIDAvailable:
		return PIDs
	default:
		return ""
	}
}

// Condition is a condition of a Node object.
type Condition string

// Conditions that thresholds set.
const (
	MemoryPressure Condition = "MemoryPressure"
	DiskPressure   Condition = "DiskPressure"
	PIDPressure    Condition = "PIDPressure"
)

// numConditions is how many conditions there are.
const numConditions = 3

// nodeConditions are all conditions, in the order in which they are listed.
func nodeConditions() [numConditions]Condition {
	return [...]Condition{MemoryPressure, DiskPressure, PIDPressure}
}

// Condition returns the condition of the node when a threshold of the signal is met, or "".
func (s Signal) Condition() Condition {
	if i := s.condition(); i >= 0 {
		return nodeConditions()[i]
	}
	return ""
}

// condition returns the place of the condition in nodeConditions, or -1.
func (s Signal) condition() int {
	switch s.Resource() {
	case Memory:
		return 0
	case EphemeralStorage, Inodes:
		return 1
	case PIDs:
		return 2
	default:
		return -1
	}
}
