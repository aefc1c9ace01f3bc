// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"cmp"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/seed81659283/nodeagent/cri"
)

// buildPodStats builds the part of a summary for a pod. If full is false, it has only CPU, memory and swap.
func (k *Collector) buildPodStats(p *pod, node *nodeSample, full bool) statsapi.PodStats {
	out := statsapi.PodStats{
		PodRef:    statsapi.PodReference{Name: p.Name, Namespace: p.Namespace, UID: p.UID},
		StartTime: metav1.NewTime(p.sandbox.CreatedAt),
	}
	for i := range p.containers {
		out.Containers = append(out.Containers, k.buildContainerStats(p, &p.containers[i], node, full))
	}
	if p.found {
		s := cgroupSample{at: p.at, stats: p.stats}
		out.CPU, out.Memory, out.Swap = k.cpuStats("pod "+cmp.Or(p.sandbox.ID, p.UID), &s), memoryStats(&s), swapStats(&s)
		if full {
			out.IO = ioStats(&s)
			tasks := p.stats.Pids.Current
			out.ProcessStats = &statsapi.ProcessStats{ProcessCount: &tasks}
		}
	} else {
		sumContainers(&out)
	}
	if full {
		out.Network = networkStats(p.interfaces, p.networkAt)
		k.addStorage(p, node, &out)
	}
	return out
}

// buildContainerStats builds the part of a summary for a container, from its cgroup or else from the runtime.
func (k *Collector) buildContainerStats(p *pod, c *container, node *nodeSample, full bool) statsapi.ContainerStats {
	out := statsapi.ContainerStats{Name: c.Name, StartTime: metav1.NewTime(c.CreatedAt)}
	switch {
	case c.found:
		s := cgroupSample{at: c.at, stats: c.stats}
		out.CPU, out.Memory, out.Swap = k.cpuStats("container "+c.ID, &s), memoryStats(&s), swapStats(&s)
		if full {
			out.IO = ioStats(&s)
		}
	case c.runtime != nil:
		k.applyRuntimeStats(c.runtime, &out)
	}
	if !full {
		return out
	}
	if out.Rootfs = node.layer.fsStats(); c.runtime != nil && c.runtime.WritableLayer != nil {
		w := c.runtime.WritableLayer
		out.Rootfs.Time, out.Rootfs.UsedBytes, out.Rootfs.InodesUsed = metav1.NewTime(w.Time), w.UsedBytes, w.InodesUsed
	}
	out.Logs = k.pathUsage(k.logDir(p.PodIdentity, c.Name), node)
	return out
}

// applyRuntimeStats copies the values measured by the runtime into out. If they include no CPU rate, it computes the rate
// from the CPU time.
func (k *Collector) applyRuntimeStats(r *cri.ContainerStats, out *statsapi.ContainerStats) {
	if c := r.CPU; c != nil {
		out.CPU = &statsapi.CPUStats{Time: metav1.NewTime(c.Time), UsageCoreNanoSeconds: c.UsageCoreNanoSeconds, UsageNanoCores: c.UsageNanoCores}
		if c.UsageNanoCores == nil && c.UsageCoreNanoSeconds != nil {
			out.CPU.UsageNanoCores = k.rates.updateRate("runtime "+r.ID, *c.UsageCoreNanoSeconds, c.Time)
		}
	}
	if m := r.Memory; m != nil {
		out.Memory = &statsapi.MemoryStats{
			Time: metav1.NewTime(m.Time), UsageBytes: m.UsageBytes, WorkingSetBytes: m.WorkingSetBytes, RSSBytes: m.RSSBytes,
			PageFaults: m.PageFaults, MajorPageFaults: m.MajorPageFaults, AvailableBytes: m.AvailableBytes,
		}
		if m.AvailableBytes != nil && *m.AvailableBytes == 0 { // containerd reports zero if there is no limit
			out.Memory.AvailableBytes = nil
		}
	}
	if s := r.Swap; s != nil {
		out.Swap = &statsapi.SwapStats{Time: metav1.NewTime(s.Time), SwapUsageBytes: s.UsageBytes, SwapAvailableBytes: s.AvailableBytes}
	}
}

// sumContainers sets CPU, memory and swap of p to the sums of its containers, as the kubelet does for a pod without a cgroup.
func sumContainers(p *statsapi.PodStats) {
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.CPU != nil {
			if p.CPU == nil {
				p.CPU = &statsapi.CPUStats{}
			}
			p.CPU.Time = laterTime(p.CPU.Time, c.CPU.Time)
			p.CPU.UsageCoreNanoSeconds = addOptional(p.CPU.UsageCoreNanoSeconds, c.CPU.UsageCoreNanoSeconds)
			p.CPU.UsageNanoCores = addOptional(p.CPU.UsageNanoCores, c.CPU.UsageNanoCores)
		}
		if m := c.Memory; m != nil {
			if p.Memory == nil {
				p.Memory = &statsapi.MemoryStats{}
			}
			p.Memory.Time = laterTime(p.Memory.Time, m.Time)
			p.Memory.AvailableBytes = addOptional(p.Memory.AvailableBytes, m.AvailableBytes)
			p.Memory.UsageBytes = addOptional(p.Memory.UsageBytes, m.UsageBytes)
			p.Memory.WorkingSetBytes = addOptional(p.Memory.WorkingSetBytes, m.WorkingSetBytes)
			p.Memory.RSSBytes = addOptional(p.Memory.RSSBytes, m.RSSBytes)
			p.Memory.PageFaults = addOptional(p.Memory.PageFaults, m.PageFaults)
			p.Memory.MajorPageFaults = addOptional(p.Memory.MajorPageFaults, m.MajorPageFaults)
		}
		if c.Swap != nil {
			if p.Swap == nil {
				p.Swap = &statsapi.SwapStats{}
			}
			p.Swap.Time = laterTime(p.Swap.Time, c.Swap.Time)
			p.Swap.SwapUsageBytes = addOptional(p.Swap.SwapUsageBytes, c.Swap.SwapUsageBytes)
			p.Swap.SwapAvailableBytes = addOptional(p.Swap.SwapAvailableBytes, c.Swap.SwapAvailableBytes)
		}
	}
}

func laterTime(a, b metav1.Time) metav1.Time {
	if a.Before(&b) {
		return b
	}
	return a
}

// addStorage adds the usage of a pod's volumes, and of its ephemeral storage, to out.
func (k *Collector) addStorage(p *pod, node *nodeSample, out *statsapi.PodStats) {
	total := node.root.fsStats()
	count := func(f *statsapi.FsStats) {
		total.UsedBytes, total.InodesUsed = addOptional(total.UsedBytes, f.UsedBytes), addOptional(total.InodesUsed, f.InodesUsed)
		total.Time = laterTime(total.Time, f.Time)
	}
	for i := range out.Containers {
		c := &out.Containers[i]
		count(c.Rootfs)
		count(c.Logs)
	}
	if k.opts.Volumes != nil {
		for _, v := range k.opts.Volumes(p.UID) {
			known := &k.walker.targets
			if v.Measure != nil {
				known = &k.volumeMeter.targets
			}
			m, ok := known.lastMeasurement(v.Path)
			if !ok {
				continue
			}
			f := statsapi.VolumeStats{Name: v.Name, PVCRef: v.PVC, FsStats: *(&fsMeasurement{m.fs, m.started}).fsStats()}
			f.UsedBytes, f.InodesUsed = &m.usage.Bytes, &m.usage.Inodes
			out.VolumeStats = append(out.VolumeStats, f)
			if v.Ephemeral {
				count(&f.FsStats)
			}
		}
	}
	count(k.pathUsage(k.logDir(p.PodIdentity, ""), node))
	count(k.pathUsage(k.hostsFile(p.UID), node))
	count(k.pathUsage(k.messageDir(p.UID), node))
	out.EphemeralStorage = total // writable layers, logs, ephemeral volumes, hosts file and termination messages
}

// pathUsage returns the last measured usage of a directory or file on nodefs. Before the first measurement, the usage is
// nil.
func (k *Collector) pathUsage(path string, node *nodeSample) *statsapi.FsStats {
	out := node.root.fsStats()
	if m, ok := k.walker.targets.lastMeasurement(path); path != "" && ok {
		out.UsedBytes, out.InodesUsed, out.Time = &m.usage.Bytes, &m.usage.Inodes, metav1.NewTime(m.started)
	}
	return out
}

// logDir returns the log directory of a pod, or of its container if that is not empty. Names that are no file names yield "".
func (k *Collector) logDir(p cri.PodIdentity, container string) string {
	pod := p.Namespace + "_" + p.Name + "_" + p.UID
	if !isPathElement(pod) || p.UID == "" || container != "" && !isPathElement(container) {
		return ""
	}
	return filepath.Join(k.opts.LogRoot, pod, container)
}

// hostsFile returns the path of the hosts file of a pod. For an invalid UID it returns an empty string.
func (k *Collector) hostsFile(uid string) string {
	if !isPathElement(uid) {
		return ""
	}
	return k.opts.HostsFile(uid)
}

// messageDir returns the directory of a pod's termination messages, which may have any size. An invalid UID yields "".
func (k *Collector) messageDir(uid string) string {
	if !isPathElement(uid) {
		return ""
	}
	return k.opts.TerminationMessageDir(uid)
}

// isPathElement reports whether name is valid as a single element of a path. Names from the runtime must be checked.
func isPathElement(name string) bool {
	return name != "" && name != "." && name != ".." && len(name) < 256 && !strings.ContainsAny(name, "/\x00")
}

// listTargets returns the paths whose usage is measured for running pods: by counting files (walked), or by CSI drivers.
func (k *Collector) listTargets(snapshot cri.Snapshot) (walked, byDriver []target) {
	add := func(path string, t target) {
		if t.path = path; path != "" {
			walked = append(walked, t)
		}
	}
	logs := target{topLevelOnly: true, period: k.opts.LogPeriod}
	for _, p := range runningPods(snapshot) {
		add(k.logDir(p.PodIdentity, ""), logs)
		for _, c := range p.containers {
			add(k.logDir(p.PodIdentity, c.Name), logs)
		}
		add(k.hostsFile(p.UID), target{period: k.opts.VolumePeriod})
		add(k.messageDir(p.UID), target{period: k.opts.VolumePeriod})
		if k.opts.Volumes == nil {
			continue
		}
		for _, v := range k.opts.Volumes(p.UID) {
			switch {
			case v.Measure != nil:
				byDriver = append(byDriver, target{path: v.Path, measure: v.Measure, period: max(k.opts.VolumePeriod, time.Minute)})
			case filepath.IsAbs(v.Path):
				add(v.Path, target{mounted: v.Mounted, period: k.opts.VolumePeriod})
			}
		}
	}
	return walked, byDriver
}
