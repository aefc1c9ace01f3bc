// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri"
)

// buildNodeStats builds the node part of a summary from the values in node. If full is false, it includes only CPU, memory
// and swap.
func (k *Collector) buildNodeStats(node *nodeSample, full bool) statsapi.NodeStats {
	out := statsapi.NodeStats{NodeName: k.opts.NodeName, StartTime: metav1.NewTime(node.bootTime)}
	if root := node.cgroups[nodeCgroup]; root.found {
		out.CPU, out.Memory, out.Swap = k.cpuStats("/", &root), memoryStats(&root), node.nodeSwapStats(&root)
		out.Memory.AvailableBytes = nil
		if node.memoryOK {
			free := node.availableBytes(&root.stats)
			out.Memory.AvailableBytes = &free
		}
		if full {
			out.IO = ioStats(&root)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(node.cgroups)) {
		if s := node.cgroups[name]; name != nodeCgroup && s.found {
			c := statsapi.ContainerStats{
				Name: name, StartTime: out.StartTime,
				CPU: k.cpuStats("system "+name, &s), Memory: memoryStats(&s), Swap: swapStats(&s),
			}
			if full {
				c.IO = ioStats(&s)
			}
			out.SystemContainers = append(out.SystemContainers, c)
		}
	}
	if !full {
		return out
	}
	out.Network = networkStats(node.interfaces, node.networkAt)
	if !node.tasksAt.IsZero() {
		running, most := node.tasks, node.maxTasks
		out.Rlimit = &statsapi.RlimitStats{Time: metav1.NewTime(node.tasksAt), MaxPID: &most, NumOfRunningProcesses: &running}
	}
	if node.root != nil {
		out.Fs = node.root.fsStats()
		used, inodes := node.root.filesystem.UsedBytes(), node.root.filesystem.inodesUsed()
		out.Fs.UsedBytes, out.Fs.InodesUsed = &used, &inodes
	}
	out.Runtime = &statsapi.RuntimeStats{ImageFs: node.imageFsStats(node.image, node.images), ContainerFs: node.imageFsStats(node.layer, node.layers)}
	return out
}

// imageFsStats returns the measured size of an image file system with the usage that the runtime reports, or nil without one.
func (n *nodeSample) imageFsStats(m *fsMeasurement, usage cri.FilesystemUsage) *statsapi.FsStats {
	if !n.imagesKnown {
		return nil
	}
	out := m.fsStats()
	out.Time = metav1.NewTime(usage.Time)
	out.UsedBytes, out.InodesUsed = usage.UsedBytes, usage.InodesUsed
	return out
}

// fsStats returns the size and free space of the measured file system, or empty values if m is nil.
func (m *fsMeasurement) fsStats() *statsapi.FsStats {
	if m == nil {
		return &statsapi.FsStats{}
	}
	out := &statsapi.FsStats{Time: metav1.NewTime(m.at)}
	out.CapacityBytes, out.AvailableBytes = &m.filesystem.CapacityBytes, &m.filesystem.AvailableBytes
	if m.filesystem.Inodes > 0 {
		out.Inodes, out.InodesFree = &m.filesystem.Inodes, &m.filesystem.InodesFree
	}
	return out
}

// cpuStats returns the CPU time in sample, and the CPU rate since the previous call with the same name.
func (k *Collector) cpuStats(name string, sample *cgroupSample) *statsapi.CPUStats {
	used := sample.stats.CPU.Usage
	return &statsapi.CPUStats{
		Time: metav1.NewTime(sample.at), UsageCoreNanoSeconds: &used,
		UsageNanoCores: k.rates.updateRate(name, used, sample.at), PSI: psiStats(sample.stats.CPU.Pressure),
	}
}

func memoryStats(sample *cgroupSample) *statsapi.MemoryStats {
	m := &sample.stats.Memory
	used, rss, faults, major, working := m.Current, m.Stat.Anon, m.Stat.PageFaults, m.Stat.MajorPageFaults, m.WorkingSet()
	return &statsapi.MemoryStats{
		Time: metav1.NewTime(sample.at), UsageBytes: &used, WorkingSetBytes: &working, RSSBytes: &rss,
		PageFaults: &faults, MajorPageFaults: &major, AvailableBytes: availableBytes(&sample.stats), PSI: psiStats(m.Pressure),
	}
}

func swapStats(sample *cgroupSample) *statsapi.SwapStats {
	used := sample.stats.Memory.Swap
	out := &statsapi.SwapStats{Time: metav1.NewTime(sample.at), SwapUsageBytes: &used}
	if limit := sample.stats.Memory.SwapMax; limit != nil && *limit >= 0 && *limit <= 1<<62 {
		free := subSaturated(uint64(*limit), used)
		out.SwapAvailableBytes = &free
	}
	return out
}

// nodeSwapStats returns the swap usage of the root cgroup. It computes the available swap from the swap space of the
// machine.
func (n *nodeSample) nodeSwapStats(root *cgroupSample) *statsapi.SwapStats {
	out := swapStats(root)
	if n.memoryOK {
		free := subSaturated(n.memory.swapTotal, root.stats.Memory.Swap)
		out.SwapAvailableBytes = &free
	}
	return out
}

func ioStats(sample *cgroupSample) *statsapi.IOStats {
	return &statsapi.IOStats{Time: metav1.NewTime(sample.at), PSI: psiStats(sample.stats.IO.Pressure)}
}

// psiStats converts the pressure stall information of a cgroup. Totals are in microseconds, as in the kernel and the
// kubelet, although the API documents nanoseconds.
func psiStats(p *cgroups.Pressure) *statsapi.PSIStats {
	if p == nil {
		return nil
	}
	line := func(l cgroups.PressureLine) statsapi.PSIData {
		return statsapi.PSIData{Total: uint64(max(l.Total, 0) / time.Microsecond), Avg10: l.Avg10, Avg60: l.Avg60, Avg300: l.Avg300}
	}
	return &statsapi.PSIStats{Some: line(p.Some), Full: line(p.Full)}
}

// networkStats returns the traffic of all interfaces, read at readAt, or nil if that is zero. The default interface is eth0.
func networkStats(all []Interface, readAt time.Time) *statsapi.NetworkStats {
	if readAt.IsZero() {
		return nil
	}
	out := &statsapi.NetworkStats{Time: metav1.NewTime(readAt)}
	for _, i := range all {
		out.Interfaces = append(out.Interfaces, statsapi.InterfaceStats{
			Name: i.Name, RxBytes: &i.RxBytes, RxErrors: &i.RxErrors, TxBytes: &i.TxBytes, TxErrors: &i.TxErrors,
		})
		if i.Name == "eth0" {
			out.InterfaceStats = out.Interfaces[len(out.Interfaces)-1]
		}
	}
	return out
}
