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

// podStats puts together what is known of a pod.
func (k *Collector) podStats(p *pod, n *nodeSample, whole bool) statsapi.PodStats {
	out := statsapi.PodStats{
		PodRef:    statsapi.PodReference{Name: p.Name, Namespace: p.Namespace, UID: p.UID},
		StartTime: metav1.NewTime(p.sandbox.CreatedAt),
	}
	for i := range p.containers {
		out.Containers = append(out.Containers, k.containerStats(p, &p.containers[i], n, whole))
	}
	if p.found {
		s := sampled{at: p.at, stats: p.stats}
		out.CPU, out.Memory, out.Swap = k.cpu("pod "+cmp.Or(p.sandbox.ID, p.UID), &s), memoryStats(&s), swapStats(&s)
		if whole {
			out.IO = ioStats(&s)
			tasks := p.stats.Pids.Current
			out.ProcessStats = &statsapi.ProcessStats{ProcessCount: &tasks}
		}
	} else {
		sumUp(&out)
	}
	if whole {
		out.Network = networkStats(p.interfaces, p.networkAt)
		k.storage(p, n, &out)
	}
	return out
}

// containerStats puts together what is known of a container: from its cgroup or, where it has none, from the runtime.
func (k *Collector) containerStats(p *pod, c *container, n *nodeSample, whole bool) statsapi.ContainerStats {
	out := statsapi.ContainerStats{Name: c.Name, StartTime: metav1.NewTime(c.CreatedAt)}
	switch {
	case c.found:
		s := sampled{at: c.at, stats: c.stats}
		out.CPU, out.Memory, out.Swap = k.cpu("container "+c.ID, &s), memoryStats(&s), swapStats(&s)
		if whole {
			out.IO = ioStats(&s)
		}
	case c.runtime != nil:
		k.fromRuntime(c.runtime, &out)
	}
	if !whole {
		return out
	}
	if out.Rootfs = n.layer.fs(); c.runtime != nil && c.runtime.WritableLayer != nil {
		w := c.runtime.WritableLayer
		out.Rootfs.Time, out.Rootfs.UsedBytes, out.Rootfs.InodesUsed = metav1.NewTime(w.Time), w.UsedBytes, w.InodesUsed
	}
	out.Logs = k.files(k.logDir(p.PodIdentity, c.Name), n)
	return out
}

// fromRuntime takes what the runtime has measured. Without a rate of its own, one is made of its CPU time.
func (k *Collector) fromRuntime(r *cri.ContainerStats, out *statsapi.ContainerStats) {
	if c := r.CPU; c != nil {
		out.CPU = &statsapi.CPUStats{Time: metav1.NewTime(c.Time), UsageCoreNanoSeconds: c.UsageCoreNanoSeconds, UsageNanoCores: c.UsageNanoCores}
		if c.UsageNanoCores == nil && c.UsageCoreNanoSeconds != nil {
			out.CPU.UsageNanoCores = k.rates.update("runtime "+r.ID, *c.UsageCoreNanoSeconds, c.Time)
		}
	}
	if m := r.Memory; m != nil {
		out.Memory = &statsapi.MemoryStats{
			Time: metav1.NewTime(m.Time), UsageBytes: m.UsageBytes, WorkingSetBytes: m.WorkingSetBytes, RSSBytes: m.RSSBytes,
			PageFaults: m.PageFaults, MajorPageFaults: m.MajorPageFaults, AvailableBytes: m.AvailableBytes,
		}
		if m.AvailableBytes != nil && *m.AvailableBytes == 0 { // which is how containerd says that there is no limit
			out.Memory.AvailableBytes = nil
		}
	}
	if s := r.Swap; s != nil {
		out.Swap = &statsapi.SwapStats{Time: metav1.NewTime(s.Time), SwapUsageBytes: s.UsageBytes, SwapAvailableBytes: s.AvailableBytes}
	}
}

// sumUp makes the numbers of a pod without a cgroup out of those of its containers, as the kubelet does.
func sumUp(p *statsapi.PodStats) {
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.CPU != nil {
			if p.CPU == nil {
				p.CPU = &statsapi.CPUStats{}
			}
			p.CPU.Time = newest(p.CPU.Time, c.CPU.Time)
			p.CPU.UsageCoreNanoSeconds = plus(p.CPU.UsageCoreNanoSeconds, c.CPU.UsageCoreNanoSeconds)
			p.CPU.UsageNanoCores = plus(p.CPU.UsageNanoCores, c.CPU.UsageNanoCores)
		}
		if m := c.Memory; m != nil {
			if p.Memory == nil {
				p.Memory = &statsapi.MemoryStats{}
			}
			p.Memory.Time = newest(p.Memory.Time, m.Time)
			p.Memory.AvailableBytes = plus(p.Memory.AvailableBytes, m.AvailableBytes)
			p.Memory.UsageBytes = plus(p.Memory.UsageBytes, m.UsageBytes)
			p.Memory.WorkingSetBytes = plus(p.Memory.WorkingSetBytes, m.WorkingSetBytes)
			p.Memory.RSSBytes = plus(p.Memory.RSSBytes, m.RSSBytes)
			p.Memory.PageFaults = plus(p.Memory.PageFaults, m.PageFaults)
			p.Memory.MajorPageFaults = plus(p.Memory.MajorPageFaults, m.MajorPageFaults)
		}
		if c.Swap != nil {
			if p.Swap == nil {
				p.Swap = &statsapi.SwapStats{}
			}
			p.Swap.Time = newest(p.Swap.Time, c.Swap.Time)
			p.Swap.SwapUsageBytes = plus(p.Swap.SwapUsageBytes, c.Swap.SwapUsageBytes)
			p.Swap.SwapAvailableBytes = plus(p.Swap.SwapAvailableBytes, c.Swap.SwapAvailableBytes)
		}
	}
}

func newest(a, b metav1.Time) metav1.Time {
	if a.Before(&b) {
		return b
	}
	return a
}

// storage adds the volumes of a pod, and what the pod uses of local storage: writable layers, logs, volumes that count
// to it, and the hosts file.
func (k *Collector) storage(p *pod, n *nodeSample, out *statsapi.PodStats) {
	total := n.root.fs()
	count := func(f *statsapi.FsStats) {
		total.UsedBytes, total.InodesUsed = plus(total.UsedBytes, f.UsedBytes), plus(total.InodesUsed, f.InodesUsed)
		total.Time = newest(total.Time, f.Time)
	}
	for i := range out.Containers {
		c := &out.Containers[i]
		count(c.Rootfs)
		count(c.Logs)
	}
	if k.opts.Volumes != nil {
		for _, v := range k.opts.Volumes(p.UID) {
			known := &k.walker.known
			if v.Measure != nil {
				known = &k.asker.known
			}
			m, ok := known.get(v.Path)
			if !ok {
				continue
			}
			f := statsapi.VolumeStats{Name: v.Name, PVCRef: v.PVC, FsStats: *(&measured{m.fs, m.at}).fs()}
			f.UsedBytes, f.InodesUsed = &m.Bytes, &m.Inodes
			out.VolumeStats = append(out.VolumeStats, f)
			if v.Ephemeral {
				count(&f.FsStats)
			}
		}
	}
	count(k.files(k.logDir(p.PodIdentity, ""), n))
	count(k.files(k.hostsFile(p.UID), n))
	count(k.files(k.messageDir(p.UID), n))
	out.EphemeralStorage = total
}

// files is what was measured of a path, on nodefs. What was not measured yet has no usage.
func (k *Collector) files(path string, n *nodeSample) *statsapi.FsStats {
	out := n.root.fs()
	if m, ok := k.walker.known.get(path); path != "" && ok {
		out.UsedBytes, out.InodesUsed, out.Time = &m.Bytes, &m.Inodes, metav1.NewTime(m.at)
	}
	return out
}

// logDir is where the logs of a pod are, or those of one of its containers, and empty where a name leads elsewhere.
func (k *Collector) logDir(p cri.PodIdentity, container string) string {
	pod := p.Namespace + "_" + p.Name + "_" + p.UID
	if !plain(pod) || p.UID == "" || container != "" && !plain(container) {
		return ""
	}
	return filepath.Join(k.opts.LogRoot, pod, container)
}

// hostsFile is the hosts file of a pod, empty where its UID is none.
func (k *Collector) hostsFile(uid string) string {
	if !plain(uid) {
		return ""
	}
	return k.opts.HostsFile(uid)
}

// messageDir is the directory with the termination messages of a pod, empty where its UID is none. A container may write as much into such a
// file as into one of its own.
func (k *Collector) messageDir(uid string) string {
	if !plain(uid) {
		return ""
	}
	return k.opts.TerminationMessageDir(uid)
}

// plain reports whether a name is one component of a path. Names come from the runtime.
func plain(name string) bool {
	return name != "" && name != "." && name != ".." && len(name) < 256 && !strings.ContainsAny(name, "/\x00")
}

// targets returns what is to be measured for the pods that run, and of what somebody is asked.
func (k *Collector) targets(s cri.Snapshot) (walked, asked []target) {
	add := func(path string, t target) {
		if t.path = path; path != "" {
			walked = append(walked, t)
		}
	}
	logs := target{flat: true, every: k.opts.LogPeriod}
	for _, p := range running(s) {
		add(k.logDir(p.PodIdentity, ""), logs)
		for _, c := range p.containers {
			add(k.logDir(p.PodIdentity, c.Name), logs)
		}
		add(k.hostsFile(p.UID), target{every: k.opts.VolumePeriod})
		add(k.messageDir(p.UID), target{every: k.opts.VolumePeriod})
		if k.opts.Volumes == nil {
			continue
		}
		for _, v := range k.opts.Volumes(p.UID) {
			switch {
			case v.Measure != nil:
				asked = append(asked, target{path: v.Path, ask: v.Measure, every: max(k.opts.VolumePeriod, time.Minute)})
			case filepath.IsAbs(v.Path):
				add(v.Path, target{mounted: v.Mounted, every: k.opts.VolumePeriod})
			}
		}
	}
	return walked, asked
}
