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

// nodeStats puts together what is known of the node.
func (k *Collector) nodeStats(n *nodeSample, whole bool) statsapi.NodeStats {
	out := statsapi.NodeStats{NodeName: k.opts.NodeName, StartTime: metav1.NewTime(n.booted)}
	if root := n.cgroups[theNode]; root.found {
		out.CPU, out.Memory, out.Swap = k.cpu("/", &root), memoryStats(&root), n.swap(&root)
		out.Memory.AvailableBytes = nil
		if n.memoryOK {
			free := n.availableBytes(&root.stats)
			out.Memory.AvailableBytes = &free
		}
		if whole {
			out.IO = ioStats(&root)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(n.cgroups)) {
		if s := n.cgroups[name]; name != theNode && s.found {
			c := statsapi.ContainerStats{
				Name: name, StartTime: out.StartTime,
				CPU: k.cpu("system "+name, &s), Memory: memoryStats(&s), Swap: swapStats(&s),
			}
			if whole {
				c.IO = ioStats(&s)
			}
			out.SystemContainers = append(out.SystemContainers, c)
		}
	}
	if !whole {
		return out
	}
	out.Network = networkStats(n.interfaces, n.networkAt)
	if !n.tasksAt.IsZero() {
		running, most := n.tasks, n.maxTasks
		out.Rlimit = &statsapi.RlimitStats{Time: metav1.NewTime(n.tasksAt), MaxPID: &most, NumOfRunningProcesses: &running}
	}
	if n.root != nil {
		out.Fs = n.root.fs()
		used, inodes := n.root.UsedBytes(), n.root.inodesUsed()
		out.Fs.UsedBytes, out.Fs.InodesUsed = &used, &inodes
	}
	out.Runtime = &statsapi.RuntimeStats{ImageFs: n.imageFs(n.image, n.images), ContainerFs: n.imageFs(n.layer, n.layers)}
	return out
}

// imageFs is a file system of the runtime: it says what it uses, and the file system how large it is.
func (n *nodeSample) imageFs(m *measured, u cri.FilesystemUsage) *statsapi.FsStats {
	if !n.imagesKnown {
		return nil
	}
	out := m.fs()
	out.Time = metav1.NewTime(u.Time)
	out.UsedBytes, out.InodesUsed = u.UsedBytes, u.InodesUsed
	return out
}

// fs is how large a file system is, without what uses it.
func (m *measured) fs() *statsapi.FsStats {
	if m == nil {
		return &statsapi.FsStats{}
	}
	out := &statsapi.FsStats{Time: metav1.NewTime(m.at)}
	out.CapacityBytes, out.AvailableBytes = &m.CapacityBytes, &m.AvailableBytes
	if m.Inodes > 0 {
		out.Inodes, out.InodesFree = &m.Inodes, &m.InodesFree
	}
	return out
}

// cpu is the CPU time of a cgroup, by a name for its rate.
func (k *Collector) cpu(name string, s *sampled) *statsapi.CPUStats {
	used := s.stats.CPU.Usage
	return &statsapi.CPUStats{
		Time: metav1.NewTime(s.at), UsageCoreNanoSeconds: &used,
		UsageNanoCores: k.rates.update(name, used, s.at), PSI: psi(s.stats.CPU.Pressure),
	}
}

func memoryStats(s *sampled) *statsapi.MemoryStats {
	m := &s.stats.Memory
	used, rss, faults, major, working := m.Current, m.Stat.Anon, m.Stat.PageFaults, m.Stat.MajorPageFaults, m.WorkingSet()
	return &statsapi.MemoryStats{
		Time: metav1.NewTime(s.at), UsageBytes: &used, WorkingSetBytes: &working, RSSBytes: &rss,
		PageFaults: &faults, MajorPageFaults: &major, AvailableBytes: availableBytes(&s.stats), PSI: psi(m.Pressure),
	}
}

func swapStats(s *sampled) *statsapi.SwapStats {
	used := s.stats.Memory.Swap
	out := &statsapi.SwapStats{Time: metav1.NewTime(s.at), SwapUsageBytes: &used}
	if limit := s.stats.Memory.SwapMax; limit != nil && *limit >= 0 && *limit <= 1<<62 {
		free := sub(uint64(*limit), used)
		out.SwapAvailableBytes = &free
	}
	return out
}

// swap is that of the node, whose limit is what the machine has.
func (n *nodeSample) swap(root *sampled) *statsapi.SwapStats {
	out := swapStats(root)
	if n.memoryOK {
		free := sub(n.memory.swapTotal, root.stats.Memory.Swap)
		out.SwapAvailableBytes = &free
	}
	return out
}

func ioStats(s *sampled) *statsapi.IOStats {
	return &statsapi.IOStats{Time: metav1.NewTime(s.at), PSI: psi(s.stats.IO.Pressure)}
}

// psi has totals in microseconds, as the kernel has them and the kubelet passes them on, whatever its type says.
func psi(p *cgroups.Pressure) *statsapi.PSIStats {
	if p == nil {
		return nil
	}
	line := func(l cgroups.PressureLine) statsapi.PSIData {
		return statsapi.PSIData{Total: uint64(max(l.Total, 0) / time.Microsecond), Avg10: l.Avg10, Avg60: l.Avg60, Avg300: l.Avg300}
	}
	return &statsapi.PSIStats{Some: line(p.Some), Full: line(p.Full)}
}

// networkStats has the interface eth0 as the default one, and is nil for what was never read.
func networkStats(all []Interface, at time.Time) *statsapi.NetworkStats {
	if at.IsZero() {
		return nil
	}
	out := &statsapi.NetworkStats{Time: metav1.NewTime(at)}
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
