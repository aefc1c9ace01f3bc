// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/cgroupstest"
	"github.com/seed81659283/nodeagent/nodetest/machine"
	"github.com/seed81659283/nodeagent/stats"
)

// kubepods is the cgroup of all pods.
const kubepods = cgroups.Path("kubepods")

// measurer measures the machine of a node for evictions.
type measurer struct {
	name       string
	kernel     *kernel
	containers *registry
}

// Signals measures the eviction signals of the machine at the current time.
func (m *measurer) Signals(ctx context.Context) (s stats.Signals, err error) {
	k := m.kernel
	k.advance()
	spec, now := k.machine.Spec(), k.clock()
	s.Time = now
	if s.Root, err = k.machine.Cgroups().Stats(ctx, ""); err != nil {
		return s, err
	}
	s.SwapFree = uint64(spec.Swap) - s.Root.Memory.Swap
	s.Memory = &stats.Amount{Time: now, Capacity: spec.Memory, Available: spec.Memory - workingSet(&s.Root)}
	s.PIDs = &stats.Amount{Time: now, Capacity: spec.Tasks, Available: spec.Tasks - int64(s.Root.Pids.Current)}
	if pods, err := k.machine.Cgroups().Sample(ctx, kubepods, "", cgroups.PartMemory|cgroups.PartMemoryLimit|cgroups.PartPids); err == nil {
		s.Pods = pods
		if limit := pods.Memory.Max; limit != nil && *limit != cgroups.Unlimited {
			s.Allocatable = &stats.Amount{Time: now, Capacity: *limit, Available: *limit - workingSet(&pods)}
		}
	}
	s.NodeDevice, s.ImageDevice, s.ContainerDevice = 1, 1, 1
	if spec.ImageDisk != nil {
		s.ImageDevice, s.ContainerDevice = 2, 2
	}
	s.NodeFs, s.NodeInodes = diskAmounts(now, k.machine.DiskUsage(machine.NodeDisk))
	s.ImageFs, s.ImageInodes = diskAmounts(now, k.machine.DiskUsage(machine.ImageDisk))
	s.ContainerFs, s.ContainerInodes = s.ImageFs, s.ImageInodes
	return s, nil
}

// workingSet returns the memory usage in s minus the inactive page cache, in bytes.
func workingSet(s *cgroups.Stats) int64 {
	return int64(s.Memory.Current - min(s.Memory.Current, s.Memory.Stat.InactiveFile))
}

// diskAmounts returns the free bytes and inodes of a disk.
func diskAmounts(now time.Time, u machine.DiskUsage) (bytes, inodes *stats.Amount) {
	return &stats.Amount{Time: now, Capacity: u.Bytes, Available: u.Bytes - u.UsedBytes},
		&stats.Amount{Time: now, Capacity: u.Inodes, Available: u.Inodes - u.UsedInodes}
}

// Summary measures each pod that has a running container. The result has the form of Summary of stats.Collector. A pod whose containers wait for a
// restart is missing, and is therefore evicted first.
func (m *measurer) Summary(ctx context.Context) (*statsapi.Summary, error) {
	m.kernel.advance()
	summary := &statsapi.Summary{Node: statsapi.NodeStats{NodeName: m.name}}
	byPod := map[string]*statsapi.PodStats{}
	containers := m.containers.copyContainers()
	for _, id := range slices.Sorted(maps.Keys(containers)) {
		c := containers[id]
		usage, err := m.kernel.machine.Cgroups().Stats(ctx, c.cgroup)
		if err != nil { // it has exited
			continue
		}
		p := byPod[c.pod.UID]
		if p == nil {
			p = &statsapi.PodStats{PodRef: statsapi.PodReference{Name: c.pod.Name, Namespace: c.pod.Namespace, UID: c.pod.UID}}
			byPod[c.pod.UID] = p
			m.measurePod(ctx, p, c.cgroup.Parent())
		}
		p.Containers = append(p.Containers, m.measureContainer(id, c, &usage))
	}
	for _, uid := range slices.Sorted(maps.Keys(byPod)) {
		summary.Pods = append(summary.Pods, *byPod[uid])
	}
	return summary, nil
}

// measurePod stores the usage of the given cgroup, and the sizes of the volumes of the pod p.PodRef, in p.
func (m *measurer) measurePod(ctx context.Context, p *statsapi.PodStats, cgroup cgroups.Path) {
	if s, err := m.kernel.machine.Cgroups().Stats(ctx, cgroup); err == nil {
		p.CPU, p.Memory, p.Swap = m.cpuStats(&s), m.memoryStats(&s), &statsapi.SwapStats{Time: m.timestamp(), SwapUsageBytes: &s.Memory.Swap}
		p.ProcessStats = &statsapi.ProcessStats{ProcessCount: &s.Pids.Current}
	}
	for _, f := range m.kernel.machine.Files(p.PodRef.UID) {
		if name, ok := strings.CutPrefix(f.Directory, volumeDirectory); ok {
			p.VolumeStats = append(p.VolumeStats, statsapi.VolumeStats{Name: name, FsStats: *m.fileStats(f)})
		}
	}
}

// measureContainer returns the stats of the container c with this ID: usage, which is the usage of its cgroup, and the sizes
// of its writable layer and logs.
func (m *measurer) measureContainer(id string, c *simulatedContainer, usage *cgroups.Stats) statsapi.ContainerStats {
	stats := statsapi.ContainerStats{Name: c.name, CPU: m.cpuStats(usage), Memory: m.memoryStats(usage)}
	for _, f := range m.kernel.machine.Files(id) {
		switch f.Directory {
		case layerDirectory:
			stats.Rootfs = m.fileStats(f)
		case logsDirectory:
			stats.Logs = m.fileStats(f)
		}
	}
	return stats
}

// timestamp returns the present time.
func (m *measurer) timestamp() metav1.Time { return metav1.NewTime(m.kernel.clock()) }

func (m *measurer) cpuStats(s *cgroups.Stats) *statsapi.CPUStats {
	return &statsapi.CPUStats{Time: m.timestamp(), UsageCoreNanoSeconds: &s.CPU.Usage}
}

func (m *measurer) memoryStats(s *cgroups.Stats) *statsapi.MemoryStats {
	return &statsapi.MemoryStats{
		Time: m.timestamp(), UsageBytes: &s.Memory.Current, WorkingSetBytes: new(uint64(workingSet(s))), RSSBytes: &s.Memory.Stat.Anon,
	}
}

func (m *measurer) fileStats(f machine.Files) *statsapi.FsStats {
	return &statsapi.FsStats{Time: m.timestamp(), UsedBytes: new(uint64(f.Bytes)), InodesUsed: new(uint64(f.Inodes))}
}

// podUsage returns the usage of a pod, see [Node.Stats].
func podUsage(ctx context.Context, tree *cgroupstest.Tree, pod *corev1.Pod) (total cgroups.Stats, err error) {
	path := podCgroup(pod)
	if total, err = tree.Stats(ctx, path); err != nil {
		return total, err
	}
	total.CPU.Periods, total.CPU.Throttled, total.CPU.ThrottledTime = 0, 0, 0
	containers, err := tree.Children(ctx, path)
	for _, c := range containers {
		if s, err := tree.Stats(ctx, path.Join(c)); err == nil {
			total.CPU.Periods += s.CPU.Periods
			total.CPU.Throttled += s.CPU.Throttled
			total.CPU.ThrottledTime += s.CPU.ThrottledTime
		}
	}
	return total, err
}
