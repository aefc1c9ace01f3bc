// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"context"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/seed81659283/nodeagent/cgroups"
)

// Amount is what is available of something, and how much of it there is.
type Amount struct {
	Time      time.Time // when it was measured
	Available int64     // less than zero where there are more tasks than there may be
	Capacity  int64
}

// Signals is what a node evicts pods by. Bytes, inodes and tasks; nil is not known. ImageFs and ContainerFs are the same
// values as NodeFs where they are the same file system, and ContainerFs those of ImageFs where the runtime keeps layers
// with images.
type Signals struct {
	Time time.Time // when the first of them was measured

	Memory *Amount // memory.available: what is no working set, of the memory without huge pages
	// MemAvailable is what the kernel says that new programs could have, as in /proc/meminfo, of the same memory. It is less than Memory
	// by what the kernel has for itself and keeps free, which no cgroup counts at the top of v2; the kubelet does not look at it.
	MemAvailable *Amount
	Allocatable  *Amount // allocatableMemory.available: the same of the cgroup of all pods, against its limit
	PIDs         *Amount // pid.available
	// AllocatablePIDs is the same of the cgroup of all pods, against its limit; nil where it has none. The kubelet has no such signal:
	// pods that use up what they have together cannot fork although the node could.
	AllocatablePIDs *Amount

	NodeFs, NodeInodes           *Amount // nodefs.available and nodefs.inodesFree
	ImageFs, ImageInodes         *Amount // imagefs.available and imagefs.inodesFree
	ContainerFs, ContainerInodes *Amount // containerfs.available and containerfs.inodesFree

	// The devices of the three say which are the same file system: images on a device of their own are a dedicated
	// imagefs, and layers on another one than images are a split one. Zero: not known.
	NodeDevice, ImageDevice, ContainerDevice uint64

	// Root and Pods are the numbers of the kernel for the whole node and for all pods: what is active cache,
	// reclaimable slab and swap in Memory.Stat, and the pressure.
	Root, Pods cgroups.Stats
	SwapFree   uint64 // bytes of the machine
}

// partsSignals are read for Signals.
const partsSignals = cgroups.PartMemory | cgroups.PartMemoryLimit | cgroups.PartMemoryPressure | cgroups.PartSwap

// partsPods are read beside them of the cgroup of all pods.
const partsPods = cgroups.PartPids | cgroups.PartPidsLimit

// Signals reads what the node evicts pods by: a few files, and the size of its file systems. It asks the runtime for the
// place of images only until it has answered once, and waits for nothing longer than [Options].SignalTimeout. What a
// source does not have is nil, and the error names the source.
func (k *Collector) Signals(ctx context.Context) (Signals, error) {
	var f failures
	n := nodeSample{cgroups: map[string]sampled{}}
	s := Signals{Time: time.Now()}
	root := k.sample(ctx, "", "", partsSignals, &f)
	pods := k.sample(ctx, cgroups.QOSPath(k.opts.CgroupRoot, cgroups.Guaranteed), "", partsSignals|partsPods, &f)
	k.machine(&n, &f)
	n.cgroups[theNode], n.cgroups[statsapi.SystemContainerPods] = root, pods
	s.Root, s.Pods = root.stats, pods.stats
	if n.memoryOK {
		s.SwapFree = n.memory.swapFree
	}
	s.Memory, s.Allocatable = n.available(), pods.available()
	if s.Memory != nil && n.memory.available != nil {
		s.MemAvailable = &Amount{s.Memory.Time, signed(*n.memory.available), s.Memory.Capacity}
	}
	if !n.tasksAt.IsZero() {
		s.PIDs = &Amount{n.tasksAt, n.maxTasks - n.tasks, n.maxTasks}
	}
	s.AllocatablePIDs = pods.availablePIDs()
	u, err := k.imageUsage(ctx, 1<<62, k.opts.SignalTimeout)
	f.add("runtime", "image usage", err)
	k.askDisks(ctx, &n, u, k.opts.SignalTimeout, &f)
	s.NodeFs, s.NodeInodes = n.root.amounts()
	s.ImageFs, s.ImageInodes = n.image.amounts()
	s.ContainerFs, s.ContainerInodes = n.layer.amounts()
	s.NodeDevice, s.ImageDevice, s.ContainerDevice = n.root.device(), n.image.device(), n.layer.device()
	return s, f.join()
}

// available returns memory.available of the node: the capacity is what is available and what is in the working set.
func (n *nodeSample) available() *Amount {
	root := n.cgroups[theNode]
	if !root.found || !n.memoryOK {
		return nil
	}
	free := n.availableBytes(&root.stats)
	return &Amount{root.at, signed(free), signed(add(free, root.stats.Memory.WorkingSet()))}
}

// availableBytes is the memory of the machine without its working set and without the huge pages, which no cgroup
// counts in its memory (gate HugepageAwareEviction).
func (n *nodeSample) availableBytes(root *cgroups.Stats) uint64 {
	return sub(sub(n.memory.total, root.Memory.WorkingSet()), n.memory.hugePages)
}

// available returns what a cgroup with a limit has left, nil for one without.
func (s *sampled) available() *Amount {
	free := availableBytes(&s.stats)
	if !s.found || free == nil {
		return nil
	}
	return &Amount{s.at, signed(*free), signed(add(*free, s.stats.Memory.WorkingSet()))}
}

// availablePIDs returns how many tasks a cgroup with a limit has left, nil for one without.
func (s *sampled) availablePIDs() *Amount {
	most := s.stats.Pids.Max
	if !s.found || most == nil || *most < 0 {
		return nil
	}
	return &Amount{s.at, *most - signed(s.stats.Pids.Current), *most}
}

// availableBytes returns the limit without the working set, nil where there is no limit.
func availableBytes(s *cgroups.Stats) *uint64 {
	limit := s.Memory.Max
	if limit == nil || *limit < 0 || *limit > 1<<62 {
		return nil
	}
	free := sub(uint64(*limit), s.Memory.WorkingSet())
	return &free
}

// device returns which file system it is, zero where it is not known.
func (m *measured) device() uint64 {
	if m == nil {
		return 0
	}
	return m.Device
}

// amounts returns bytes and inodes of a file system.
func (m *measured) amounts() (bytes, inodes *Amount) {
	if m == nil {
		return nil, nil
	}
	bytes = &Amount{m.at, signed(m.AvailableBytes), signed(m.CapacityBytes)}
	if m.Inodes > 0 {
		inodes = &Amount{m.at, signed(m.InodesFree), signed(m.Inodes)}
	}
	return bytes, inodes
}
