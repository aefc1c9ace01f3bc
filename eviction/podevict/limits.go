// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podevict

import (
	"fmt"
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/internal/containers"
	"github.com/seed81659283/nodeagent/qos"
)

// exceeded returns the first limit of local storage that a pod exceeds: of an emptyDir, of the pod, of a container. Source:
// localStorageEviction in pkg/kubelet/eviction/eviction_manager.go.
func exceeded(pod *corev1.Pod, stats *statsapi.PodStats, l eviction.Layout) *eviction.ExceededLimit {
	if e := emptyDirExceeded(pod, stats); e != nil {
		return e
	}
	if e := podExceeded(pod, stats); e != nil {
		return e
	}
	return containerExceeded(pod, stats, l)
}

// emptyDirExceeded compares what is used of each emptyDir with its size limit.
func emptyDirExceeded(pod *corev1.Pod, stats *statsapi.PodStats) *eviction.ExceededLimit {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.EmptyDir == nil || v.EmptyDir.SizeLimit == nil || v.EmptyDir.SizeLimit.Sign() != 1 {
			continue
		}
		used := volumeUsed(stats, v.Name)
		if used == nil || !exceeds(*used, v.EmptyDir.SizeLimit) {
			continue
		}
		limit := v.EmptyDir.SizeLimit.DeepCopy()
		return &eviction.ExceededLimit{
			Signal:  eviction.EmptyDirLimit,
			Message: fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", v.Name, limit.String()),
		}
	}
	return nil
}

// volumeUsed returns what was measured last of a volume, or nil.
func volumeUsed(stats *statsapi.PodStats, name string) (used *uint64) {
	for i := range stats.VolumeStats {
		if stats.VolumeStats[i].Name == name {
			used = stats.VolumeStats[i].UsedBytes
		}
	}
	return used
}

// podExceeded compares what a pod uses in all with its limits.
func podExceeded(pod *corev1.Pod, stats *statsapi.PodStats) *eviction.ExceededLimit {
	if !limitsStorage(pod) {
		return nil
	}
	limit, ok := qos.Limits(pod, qos.Options{})[corev1.ResourceEphemeralStorage]
	used := uint64(0)
	if s := stats.EphemeralStorage; s != nil && s.UsedBytes != nil {
		used = *s.UsedBytes
	}
	if !ok || !exceeds(used, &limit) {
		return nil
	}
	return &eviction.ExceededLimit{
		Signal:  eviction.PodLimit,
		Message: fmt.Sprintf("Pod ephemeral local storage usage exceeds the total limit of containers %s. ", limit.String()),
	}
}

// limitsStorage reports whether anything in a pod limits its local storage. It keeps all others from being added up.
func limitsStorage(pod *corev1.Pod) bool {
	has := func(list corev1.ResourceList) bool { _, ok := list[corev1.ResourceEphemeralStorage]; return ok }
	for c := range containers.NotEphemeral(&pod.Spec) {
		if has(c.Resources.Limits) {
			return true
		}
	}
	return has(pod.Spec.Overhead) || pod.Spec.Resources != nil && has(pod.Spec.Resources.Limits)
}

// containerExceeded compares what each container uses with its limit. Its writable layer counts where it is beside the logs.
func containerExceeded(pod *corev1.Pod, stats *statsapi.PodStats, l eviction.Layout) *eviction.ExceededLimit {
	for i := range stats.Containers {
		s := &stats.Containers[i]
		limit := storageLimit(pod, s.Name)
		if limit == nil || limit.Value() == 0 {
			continue
		}
		used := fsUsed(s.Logs)
		if l == eviction.SingleFS {
			used += fsUsed(s.Rootfs)
		}
		if exceeds(used, limit) {
			return &eviction.ExceededLimit{
				Signal:  eviction.ContainerLimit,
				Message: fmt.Sprintf("Container %s exceeded its local ephemeral storage limit %q. ", s.Name, limit.String()),
			}
		}
	}
	return nil
}

// storageLimit returns the limit of a regular container or a sidecar, or nil.
func storageLimit(pod *corev1.Pod, name string) *resource.Quantity {
	c := containers.Find(&pod.Spec, name)
	if c.Container == nil || c.Kind != containers.Regular && !c.IsSidecar() {
		return nil
	}
	limit, ok := c.Resources.Limits[corev1.ResourceEphemeralStorage]
	if !ok {
		return nil
	}
	return &limit
}

// fsUsed returns what is used of a filesystem, as far as it was measured. A number above 2^63-1 is none.
func fsUsed(f *statsapi.FsStats) uint64 {
	if f == nil || f.UsedBytes == nil || *f.UsedBytes > math.MaxInt64 {
		return 0
	}
	return *f.UsedBytes
}

// exceeds reports whether more is used than a limit. What is no number of bytes exceeds none.
func exceeds(used uint64, limit *resource.Quantity) bool {
	if used > math.MaxInt64 {
		return false
	}
	return resource.NewQuantity(int64(used), resource.BinarySI).Cmp(*limit) > 0
}
