// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podevict

import (
	"errors"
	"fmt"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/qos"
)

// Options tune [Candidates].
type Options struct {
	Layout         eviction.Layout // zero: eviction.SingleFS
	EvictStatic    bool            // static pods may be evicted, unless their priority is critical; in the kubelet none is
	NoLocalStorage bool            // leave Exceeds out

	// Evicting reports whether a pod is being evicted already; nil: none is.
	Evicting func(pod *corev1.Pod) bool
}

// Candidates returns a candidate for each pod, in the same order. Pods that the summary does not have were not measured. The error
// names numbers that were left out, which count as nothing.
func Candidates(pods []*corev1.Pod, s *statsapi.Summary, o Options) ([]eviction.Candidate, error) {
	byUID := make(map[string]*statsapi.PodStats, len(s.Pods))
	for i := range s.Pods {
		byUID[s.Pods[i].PodRef.UID] = &s.Pods[i]
	}
	var errs []error
	list := make([]eviction.Candidate, len(pods))
	for i, pod := range pods {
		if err := fill(&list[i], pod, byUID[string(pod.UID)], o); err != nil {
			errs = append(errs, err)
		}
	}
	return list, errors.Join(errs...)
}

// fill makes the candidate of a pod.
func fill(c *eviction.Candidate, pod *corev1.Pod, stats *statsapi.PodStats, o Options) error {
	c.UID, c.Name = string(pod.UID), pod.Namespace+"/"+pod.Name
	c.Critical = isCritical(pod, o.EvictStatic)
	c.Evicting = o.Evicting != nil && o.Evicting(pod)
	if pod.Spec.Priority != nil {
		c.Priority = *pod.Spec.Priority
	}
	if seconds := pod.Spec.TerminationGracePeriodSeconds; seconds != nil {
		c.GracePeriod, c.HasGracePeriod = duration(*seconds), true
	}
	memory, storage := qos.Request(pod, corev1.ResourceMemory), qos.Request(pod, corev1.ResourceEphemeralStorage)
	c.MemoryRequest, c.StorageRequest = max(qos.Value(&memory), 0), max(qos.Value(&storage), 0)
	if stats == nil {
		return nil
	}
	c.Measured = true
	m := measurer{pod: pod}
	if stats.Memory != nil {
		c.Memory = m.number("workingSetBytes", stats.Memory.WorkingSetBytes)
	}
	if stats.Swap != nil {
		c.Swap = m.number("swapUsageBytes", stats.Swap.SwapUsageBytes)
	}
	if stats.ProcessStats != nil {
		c.Tasks = m.number("process_count", stats.ProcessStats.ProcessCount)
	}
	for i := range stats.Containers {
		m.add(&c.Rootfs, "rootfs", stats.Containers[i].Rootfs)
		m.add(&c.Logs, "logs", stats.Containers[i].Logs)
	}
	m.volumes(&c.Volumes, stats.VolumeStats)
	if !o.NoLocalStorage {
		c.ExceededLimit = exceeded(pod, stats, o.Layout)
	}
	return m.err
}

// isCritical reports whether a pod is never evicted.
func isCritical(pod *corev1.Pod, evictStatic bool) bool {
	if evictStatic && qos.IsStatic(pod) && !qos.IsMirror(pod) {
		return pod.Spec.Priority != nil && *pod.Spec.Priority >= criticalPriority
	}
	return qos.IsCritical(pod)
}

// criticalPriority is the least priority of a critical pod. Source: SystemCriticalPriority in
// k8s.io/kubernetes/pkg/apis/scheduling.
const criticalPriority = 2_000_000_000

// duration returns seconds as a duration, at most the longest one.
func duration(seconds int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Second)
	return time.Duration(max(min(seconds, most), -most)) * time.Second
}

// measurer takes numbers out of the stats of a pod.
type measurer struct {
	pod *corev1.Pod
	err error // the first one
}

// number returns a number, or zero where there is none or it is too large.
func (m *measurer) number(field string, n *uint64) int64 {
	switch {
	case n == nil:
		return 0
	case *n > math.MaxInt64:
		if m.err == nil {
			m.err = fmt.Errorf("pod %s/%s: %s %d: more than 2^63-1", m.pod.Namespace, m.pod.Name, field, *n)
		}
		return 0
	default:
		return int64(*n)
	}
}

// add adds what is used of a filesystem.
func (m *measurer) add(u *eviction.Usage, field string, f *statsapi.FsStats) {
	if f == nil {
		return
	}
	u.Bytes = sum(u.Bytes, m.number(field+".usedBytes", f.UsedBytes))
	u.Inodes = sum(u.Inodes, m.number(field+".inodesUsed", f.InodesUsed))
}

// volumes adds what is used by volumes on local disks. Source: localVolumeNames in pkg/kubelet/eviction/helpers.go.
func (m *measurer) volumes(u *eviction.Usage, stats []statsapi.VolumeStats) {
	if len(stats) == 0 {
		return
	}
	for i := range m.pod.Spec.Volumes {
		v := &m.pod.Spec.Volumes[i]
		if v.HostPath == nil && v.GitRepo == nil && v.ConfigMap == nil && (v.EmptyDir == nil || v.EmptyDir.Medium != corev1.StorageMediumDefault) {
			continue
		}
		for j := range stats {
			if stats[j].Name == v.Name {
				m.add(u, "volume "+v.Name, &stats[j].FsStats)
				break
			}
		}
	}
}

// sum adds two numbers that are not negative; a sum that is too large is the largest number.
func sum(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
