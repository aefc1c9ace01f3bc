// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"cmp"
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/nodetest/machine"
	"github.com/seed81659283/nodeagent/qos"
)

// Sample is the usage of a node and of its pods at one instant.
type Sample struct {
	At time.Duration // age of the node
	// Node is the usage of the whole machine, with the processes that are in no pod.
	Node CgroupUsage
	// CPUs and Memory, in bytes, are the capacity of the machine.
	CPUs   int
	Memory int64
	// MemoryAvailable is the eviction signal memory.available in bytes, and DiskAvailable that of nodefs.available.
	MemoryAvailable, DiskAvailable int64
	Pods                           []PodSample // all pods of the node, sorted by name
}

// CgroupUsage is the usage of a cgroup and its descendants. Times are totals since the cgroup was created.
type CgroupUsage struct {
	CPU time.Duration // CPU time
	// Throttled is the time for which CPU quotas kept processes from running, summed over all CPUs. For a pod it is the sum of its running
	// containers, which decreases when a container restarts. For the node it is zero.
	Throttled time.Duration
	// CPUPressure and MemoryPressure are the times in which at least one process waited: the totals of the lines "some" of PSI.
	CPUPressure, MemoryPressure time.Duration
	WorkingSet                  int64 // bytes of memory without inactive page cache
	Anon, Cache, Swap           int64 // bytes of anonymous memory, of page cache, and of swap
	Tasks                       int64 // processes and threads
	Disk                        int64 // bytes of writable layers, logs and volumes
}

// PodSample is the usage of a pod at one instant. The usage is zero while the pod has no cgroup.
type PodSample struct {
	Name  string // namespace/name
	Class corev1.PodQOSClass
	Phase corev1.PodPhase
	Ready bool
	Usage CgroupUsage

	CPURequest, CPULimit       float64 // CPUs; a limit of zero: none
	MemoryRequest, MemoryLimit int64   // bytes; a limit of zero: none
	// MemoryHigh is the memory in bytes above which the kernel slows the pod down: memory.high of its cgroup, or of its running containers
	// together if that is less. Zero: none.
	MemoryHigh int64
}

// Sample returns the usage of the node and of its pods now.
func (n *Node) Sample() Sample {
	pods := n.listPods()
	m := measurer{name: n.options.Name, kernel: n.kernel, containers: &n.runtime.containers}
	return m.sample(n.ctx, n.Age(), pods)
}

// Sample returns the usage of the node and of its pods now.
func (l *Loop) Sample() Sample {
	pods := make([]*corev1.Pod, len(l.pods))
	for i, p := range l.pods {
		pods[i] = p.pod
		if p.shown != nil {
			copied := *p.pod
			copied.Status = *p.shown
			pods[i] = &copied
		}
	}
	return l.measurer.sample(l.ctx, l.Age(), pods)
}

// sample returns the usage of the node and of the given pods. age is the time since the start of the node.
func (m *measurer) sample(ctx context.Context, age time.Duration, pods []*corev1.Pod) Sample {
	m.kernel.advance()
	spec, tree := m.kernel.machine.Spec(), m.kernel.machine.Cgroups()
	s := Sample{At: age, CPUs: spec.CPUs, Memory: spec.Memory}
	if root, err := tree.Stats(ctx, ""); err == nil { // fails only if ctx has ended
		s.Node = cgroupUsage(&root)
		s.MemoryAvailable = spec.Memory - s.Node.WorkingSet
	}
	disk := m.kernel.machine.DiskUsage(machine.NodeDisk)
	s.Node.Disk, s.DiskAvailable = disk.UsedBytes, disk.Bytes-disk.UsedBytes
	files := m.podFiles()
	for _, pod := range pods {
		p := m.samplePod(ctx, pod)
		p.Usage.Disk = files[string(pod.UID)]
		s.Pods = append(s.Pods, p)
	}
	slices.SortFunc(s.Pods, func(a, b PodSample) int { return cmp.Compare(a.Name, b.Name) })
	return s
}

// samplePod returns the resources, status and usage of the pod, without its disk usage.
func (m *measurer) samplePod(ctx context.Context, pod *corev1.Pod) PodSample {
	p := PodSample{
		Name: pod.Namespace + "/" + pod.Name, Class: qos.StatusClass(pod), Phase: pod.Status.Phase, Ready: isPodReady(pod),
		CPURequest: float64(qos.CPURequest(pod)) / 1000, MemoryRequest: qos.MemoryRequest(pod),
	}
	if milli, limited := qos.CPULimit(pod); limited {
		p.CPULimit = float64(milli) / 1000
	}
	if bytes, limited := qos.MemoryLimit(pod); limited {
		p.MemoryLimit = bytes
	}
	if usage, err := podUsage(ctx, m.kernel.machine.Cgroups(), pod); err == nil { // fails if there is no cgroup
		p.Usage = cgroupUsage(&usage)
		p.MemoryHigh = m.podMemoryHigh(ctx, podCgroup(pod))
	}
	return p
}

// isPodReady reports whether the Ready condition of a pod is true.
func isPodReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// cgroupUsage converts the usage of a cgroup.
func cgroupUsage(s *cgroups.Stats) CgroupUsage {
	u := CgroupUsage{
		CPU: time.Duration(s.CPU.Usage), Throttled: time.Duration(s.CPU.ThrottledTime), WorkingSet: workingSet(s),
		Anon: int64(s.Memory.Stat.Anon), Cache: int64(s.Memory.Stat.File), Swap: int64(s.Memory.Swap), Tasks: int64(s.Pids.Current),
	}
	if s.CPU.Pressure != nil {
		u.CPUPressure = s.CPU.Pressure.Some.Total
	}
	if s.Memory.Pressure != nil {
		u.MemoryPressure = s.Memory.Pressure.Some.Total
	}
	return u
}

// podFiles returns the bytes of each pod's files on the disks, by pod UID. Pods without a started container are missing.
func (m *measurer) podFiles() map[string]int64 {
	bytes := map[string]int64{}
	add := func(uid, owner string) {
		for _, f := range m.kernel.machine.Files(owner) {
			bytes[uid] += f.Bytes
		}
	}
	for id, c := range m.containers.copyContainers() {
		if _, found := bytes[c.pod.UID]; !found {
			add(c.pod.UID, c.pod.UID) // its volumes
		}
		add(c.pod.UID, id)
	}
	return bytes
}

// podMemoryHigh returns the memory.high in bytes of the pod cgroup path. If all containers have a memory.high, and their sum
// is lower, it returns the sum. Zero means no limit.
func (m *measurer) podMemoryHigh(ctx context.Context, path cgroups.Path) int64 {
	tree := m.kernel.machine.Cgroups()
	high := func(path cgroups.Path) (bytes int64, ok bool) {
		limits, err := tree.Limits(ctx, path)
		if err != nil || limits.MemoryHigh == nil || *limits.MemoryHigh == cgroups.Unlimited {
			return 0, false
		}
		return *limits.MemoryHigh, true
	}
	lowest, ok := high(path)
	containers, _ := tree.Children(ctx, path) // a pod without a cgroup has none
	var sum int64
	for _, c := range containers {
		bytes, limited := high(path.Join(c))
		if !limited {
			return lowest
		}
		sum += bytes
	}
	if len(containers) > 0 && (!ok || sum < lowest) {
		return sum
	}
	return lowest
}
