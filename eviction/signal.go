// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package eviction

// Signal is a measured value of a node, or a limit of local storage of a pod. The names are those of the kubelet's configuration
// and metrics.
type Signal string

// Signals of thresholds: the available amount of a resource. Source: pkg/kubelet/eviction/api/types.go.
const (
	MemoryAvailable            Signal = "memory.available"            // bytes of the node that are not in a working set
	AllocatableMemoryAvailable Signal = "allocatableMemory.available" // bytes of the memory for pods that are not in a working set
	NodeFSAvailable            Signal = "nodefs.available"            // bytes of the filesystem of volumes and logs
	NodeFSInodesFree           Signal = "nodefs.inodesFree"           // inodes of that filesystem
	ImageFSAvailable           Signal = "imagefs.available"           // bytes of the filesystem of images
	ImageFSInodesFree          Signal = "imagefs.inodesFree"          // inodes of that filesystem
	ContainerFSAvailable       Signal = "containerfs.available"       // bytes of the filesystem of writable layers
	ContainerFSInodesFree      Signal = "containerfs.inodesFree"      // inodes of that filesystem
	PIDAvailable               Signal = "pid.available"               // process IDs
)

// Signals of pods that exceed a limit of local storage. They need no threshold. Source: pkg/kubelet/eviction/eviction_manager.go.
const (
	EmptyDirLimit  Signal = "emptydirfs.limit"           // size limit of an emptyDir
	PodLimit       Signal = "ephemeralpodfs.limit"       // ephemeral-storage limit of a pod
	ContainerLimit Signal = "ephemeralcontainerfs.limit" // ephemeral-storage limit of a container
)

// numSignals is the number of signals for which thresholds can be set.
const numSignals = 9

// nodeSignals returns all signals that a threshold can have, in the order in which decisions check them.
func nodeSignals() [numSignals]Signal {
	return [...]Signal{
		MemoryAvailable, AllocatableMemoryAvailable, NodeFSAvailable, NodeFSInodesFree,
		ImageFSAvailable, ImageFSInodesFree, ContainerFSAvailable, ContainerFSInodesFree, PIDAvailable,
	}
}

// index returns the position of s in nodeSignals. It returns -1 if a threshold cannot have the signal s.
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

// Resource is the kind of resource that a [Signal] measures.
type Resource string

// The resources, named as in events and messages.
const (
	Memory           Resource = "memory"
	EphemeralStorage Resource = "ephemeral-storage"
	Inodes           Resource = "inodes"
	PIDs             Resource = "pids"
)

// Resource returns the resource that s measures. It returns "" for the signals of local storage limits.
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

// Condition is the type of a condition of a Node object.
type Condition string

// Node conditions that become true while a threshold is met.
const (
	MemoryPressure Condition = "MemoryPressure"
	DiskPressure   Condition = "DiskPressure"
	PIDPressure    Condition = "PIDPressure"
)

const numConditions = 3

// nodeConditions returns all conditions in a fixed order.
func nodeConditions() [numConditions]Condition {
	return [...]Condition{MemoryPressure, DiskPressure, PIDPressure}
}

// Condition returns the node condition that is true while a threshold of s is met. It returns "" if a threshold cannot have
// the signal s.
func (s Signal) Condition() Condition {
	if i := s.conditionIndex(); i >= 0 {
		return nodeConditions()[i]
	}
	return ""
}

// conditionIndex returns the index of the condition of s in nodeConditions, or -1 if s has no condition.
func (s Signal) conditionIndex() int {
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
