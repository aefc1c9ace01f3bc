// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"context"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/seed81659283/nodeagent/cgroups"
)

// Amount is the available and total amount of a resource, in bytes, inodes or tasks.
type Amount struct {
	Time      time.Time // of the measurement
	Available int64     // negative if there are more tasks than the limit
	Capacity  int64
}

// Signals has the values of all eviction signals of a node, in bytes, inodes or tasks. A nil amount is unknown. If images are on
// nodefs, ImageFs equals NodeFs. If writable layers are on the file system of images, ContainerFs equals ImageFs.
type Signals struct {
	Time time.Time // start of the measurement

	Memory *Amount // memory.available: memory without huge pages, minus the working set
	// MemAvailable is MemAvailable of /proc/meminfo, with the capacity of Memory. It excludes memory used or kept free by the
	// kernel, which the root cgroup of v2 does not count. The kubelet does not use it.
	MemAvailable *Amount
	Allocatable  *Amount // allocatableMemory.available: the limit minus the working set of the cgroup of all pods
	PIDs         *Amount // pid.available
	// AllocatablePIDs is the limit minus the tasks of the cgroup of all pods; nil without a limit. The kubelet has no such
	// signal: pods at this limit cannot fork although the node could.
	AllocatablePIDs *Amount

	NodeFs, NodeInodes           *Amount // nodefs.available and nodefs.inodesFree
	ImageFs, ImageInodes         *Amount // imagefs.available and imagefs.inodesFree
	ContainerFs, ContainerInodes *Amount // containerfs.available and containerfs.inodesFree

	// Device numbers show which file systems are equal: images on another device than nodefs are a dedicated imagefs, layers on
	// another device than images are a split imagefs. Zero: unknown.
	NodeDevice, ImageDevice, ContainerDevice uint64

	// Root and Pods are the counters of the root cgroup and the cgroup of all pods, including active page cache, reclaimable
	// slab, swap and pressure.
	Root, Pods cgroups.Stats
	SwapFree   uint64 // free swap of the machine in bytes
}

// partsSignals selects the counters that Signals reads from both the root cgroup and the cgroup of all pods.
const partsSignals = cgroups.PartMemory | cgroups.PartMemoryLimit | cgroups.PartMemoryPressure | cgroups.PartSwap

// partsPods selects the counters that Signals reads from the cgroup of all pods only.
const partsPods = cgroups.PartPids | cgroups.PartPidsLimit

// Signals measures the eviction signals from a few files and statfs calls. It calls the runtime only until its image file
// systems are known. Each call takes at most [Options].SignalTimeout. If a source fails, its amounts are nil and the error names
// it.
func (k *Collector) Signals(ctx context.Context) (Signals, error) {
	var errs failures
	n := nodeSample{cgroups: map[string]cgroupSample{}}
	s := Signals{Time: time.Now()}
	root := k.sampleCgroup(ctx, "", "", partsSignals, &errs)
	pods := k.sampleCgroup(ctx, cgroups.QOSPath(k.opts.CgroupRoot, cgroups.Guaranteed), "", partsSignals|partsPods, &errs)
	k.readMachine(&n, &errs)
	n.cgroups[nodeCgroup], n.cgroups[statsapi.SystemContainerPods] = root, pods
	s.Root, s.Pods = root.stats, pods.stats
	if n.memoryOK {
		s.SwapFree = n.memory.swapFree
	}
	s.Memory, s.Allocatable = n.memoryAmount(), pods.memoryAmount()
	if s.Memory != nil && n.memory.available != nil {
		s.MemAvailable = &Amount{s.Memory.Time, toInt64(*n.memory.available), s.Memory.Capacity}
	}
	if !n.tasksAt.IsZero() {
		s.PIDs = &Amount{n.tasksAt, n.maxTasks - n.tasks, n.maxTasks}
	}
	s.AllocatablePIDs = pods.pidAmount()
	u, err := k.readImageUsage(ctx, 1<<62, k.opts.SignalTimeout)
	errs.addError("runtime", "image usage", err)
	k.measureDisks(ctx, &n, u, k.opts.SignalTimeout, &errs)
	s.NodeFs, s.NodeInodes = n.root.diskAmounts()
	s.ImageFs, s.ImageInodes = n.image.diskAmounts()
	s.ContainerFs, s.ContainerInodes = n.layer.diskAmounts()
	s.NodeDevice, s.ImageDevice, s.ContainerDevice = n.root.deviceID(), n.image.deviceID(), n.layer.deviceID()
	return s, errs.joinErrors()
}

// memoryAmount returns the eviction signal memory.available of the node. Its capacity is the available memory plus the
// working set.
func (n *nodeSample) memoryAmount() *Amount {
	root := n.cgroups[nodeCgroup]
	if !root.found || !n.memoryOK {
		return nil
	}
	free := n.availableBytes(&root.stats)
	return &Amount{root.at, toInt64(free), toInt64(addSaturated(free, root.stats.Memory.WorkingSet()))}
}

// availableBytes returns the memory of the machine minus the working set and the huge pages (feature gate
// HugepageAwareEviction).
func (n *nodeSample) availableBytes(root *cgroups.Stats) uint64 {
	// The memory of a cgroup does not include huge pages.
	return subSaturated(subSaturated(n.memory.total, root.Memory.WorkingSet()), n.memory.hugePages)
}

// memoryAmount returns how much memory the cgroup may still use before it reaches its limit. Without a limit it returns nil.
func (s *cgroupSample) memoryAmount() *Amount {
	free := availableBytes(&s.stats)
	if !s.found || free == nil {
		return nil
	}
	return &Amount{s.at, toInt64(*free), toInt64(addSaturated(*free, s.stats.Memory.WorkingSet()))}
}

// pidAmount returns how many tasks the cgroup may still create before it reaches its limit. Without a limit it returns nil.
func (s *cgroupSample) pidAmount() *Amount {
	most := s.stats.Pids.Max
	if !s.found || most == nil || *most < 0 {
		return nil
	}
	return &Amount{s.at, *most - toInt64(s.stats.Pids.Current), *most}
}

// availableBytes returns the memory limit of a cgroup minus its working set. Without a limit it returns nil.
func availableBytes(s *cgroups.Stats) *uint64 {
	limit := s.Memory.Max
	if limit == nil || *limit < 0 || *limit > 1<<62 {
		return nil
	}
	free := subSaturated(uint64(*limit), s.Memory.WorkingSet())
	return &free
}

// deviceID returns the device number of the measured file system. If m is nil, nothing was measured, and it returns zero.
func (m *fsMeasurement) deviceID() uint64 {
	if m == nil {
		return 0
	}
	return m.filesystem.Device
}

// diskAmounts returns the available and total bytes and inodes of a file system, or nil if m is nil.
func (m *fsMeasurement) diskAmounts() (bytes, inodes *Amount) {
	if m == nil {
		return nil, nil
	}
	bytes = &Amount{m.at, toInt64(m.filesystem.AvailableBytes), toInt64(m.filesystem.CapacityBytes)}
	if m.filesystem.Inodes > 0 {
		inodes = &Amount{m.at, toInt64(m.filesystem.InodesFree), toInt64(m.filesystem.Inodes)}
	}
	return bytes, inodes
}
