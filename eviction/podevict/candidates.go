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

// Options configures [Candidates].
type Options struct {
	Layout         eviction.Layout // zero: eviction.SingleFS
	EvictStatic    bool            // evict static pods without critical priority; the kubelet evicts no static pod
	NoLocalStorage bool            // leave ExceededLimit nil

	// Evicting reports whether a pod is being evicted; nil: never.
	Evicting func(pod *corev1.Pod) bool
}

// Candidates returns one candidate per pod, in the order of pods. It reads the usage from summary. A pod without stats in
// summary gets a candidate with Measured false. Invalid numbers count as zero, and the error names them.
func Candidates(pods []*corev1.Pod, summary *statsapi.Summary, opts Options) ([]eviction.Candidate, error) {
	byUID := make(map[string]*statsapi.PodStats, len(summary.Pods))
	for i := range summary.Pods {
		byUID[summary.Pods[i].PodRef.UID] = &summary.Pods[i]
	}
	var errs []error
	list := make([]eviction.Candidate, len(pods))
	for i, pod := range pods {
		if err := fillCandidate(&list[i], pod, byUID[string(pod.UID)], opts); err != nil {
			errs = append(errs, err)
		}
	}
	return list, errors.Join(errs...)
}

// fillCandidate sets the fields of c. stats is nil if the usage is unknown. An invalid number counts as zero and is an
// error.
func fillCandidate(c *eviction.Candidate, pod *corev1.Pod, stats *statsapi.PodStats, opts Options) error {
	c.UID, c.Name = string(pod.UID), pod.Namespace+"/"+pod.Name
	c.Critical = isCritical(pod, opts.EvictStatic)
	c.Evicting = opts.Evicting != nil && opts.Evicting(pod)
	if pod.Spec.Priority != nil {
		c.Priority = *pod.Spec.Priority
	}
	if seconds := pod.Spec.TerminationGracePeriodSeconds; seconds != nil {
		c.GracePeriod, c.HasGracePeriod = secondsToDuration(*seconds), true
	}
	memory, storage := qos.Request(pod, corev1.ResourceMemory), qos.Request(pod, corev1.ResourceEphemeralStorage)
	c.MemoryRequest, c.StorageRequest = max(qos.Value(&memory), 0), max(qos.Value(&storage), 0)
	if stats == nil {
		return nil
	}
	c.Measured = true
	m := statsReader{pod: pod}
	if stats.Memory != nil {
		c.Memory = m.toInt64("workingSetBytes", stats.Memory.WorkingSetBytes)
	}
	if stats.Swap != nil {
		c.Swap = m.toInt64("swapUsageBytes", stats.Swap.SwapUsageBytes)
	}
	if stats.ProcessStats != nil {
		c.Tasks = m.toInt64("process_count", stats.ProcessStats.ProcessCount)
	}
	for i := range stats.Containers {
		m.addUsage(&c.Rootfs, "rootfs", stats.Containers[i].Rootfs)
		m.addUsage(&c.Logs, "logs", stats.Containers[i].Logs)
	}
	m.addVolumes(&c.Volumes, stats.VolumeStats)
	if !opts.NoLocalStorage {
		c.ExceededLimit = findExceededLimit(pod, stats, opts.Layout)
	}
	return m.err
}

// isCritical reports whether the pod must never be evicted: it has a critical priority, or is static unless evictStatic is
// set.
func isCritical(pod *corev1.Pod, evictStatic bool) bool {
	if evictStatic && qos.IsStatic(pod) && !qos.IsMirror(pod) {
		return pod.Spec.Priority != nil && *pod.Spec.Priority >= criticalPriority
	}
	return qos.IsCritical(pod)
}

// criticalPriority is the lowest priority of critical pods. Source: SystemCriticalPriority in
// k8s.io/kubernetes/pkg/apis/scheduling.
const criticalPriority = 2_000_000_000

// secondsToDuration converts seconds to a duration. A value that would overflow becomes the longest positive or negative
// duration of whole seconds.
func secondsToDuration(seconds int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Second)
	return time.Duration(max(min(seconds, most), -most)) * time.Second
}

// statsReader reads numbers from the stats of a pod.
type statsReader struct {
	pod *corev1.Pod
	err error // the first error
}

// toInt64 returns *n, or zero if n is nil. If *n does not fit, it returns zero and records an error for this field.
func (m *statsReader) toInt64(field string, n *uint64) int64 {
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

// addUsage adds the used bytes and inodes of a filesystem to usage. The argument field is the name of the filesystem for
// errors.
func (m *statsReader) addUsage(usage *eviction.Usage, field string, filesystem *statsapi.FsStats) {
	if filesystem == nil {
		return
	}
	usage.Bytes = addSaturated(usage.Bytes, m.toInt64(field+".usedBytes", filesystem.UsedBytes))
	usage.Inodes = addSaturated(usage.Inodes, m.toInt64(field+".inodesUsed", filesystem.InodesUsed))
}

// addVolumes adds the usage of the pod's volumes to usage. Only volumes on local disks count. Source: localVolumeNames in
// pkg/kubelet/eviction/helpers.go.
func (m *statsReader) addVolumes(usage *eviction.Usage, stats []statsapi.VolumeStats) {
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
				m.addUsage(usage, "volume "+v.Name, &stats[j].FsStats)
				break
			}
		}
	}
}

// addSaturated returns a+b, or 2^63-1 if the sum is greater. Neither a nor b may be negative.
func addSaturated(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
