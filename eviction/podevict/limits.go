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

// findExceededLimit returns the first limit of local storage that the pod exceeds, or nil. Source: localStorageEviction in
// pkg/kubelet/eviction/eviction_manager.go.
func findExceededLimit(pod *corev1.Pod, stats *statsapi.PodStats, layout eviction.Layout) *eviction.ExceededLimit {
	if e := checkEmptyDirs(pod, stats); e != nil {
		return e
	}
	if e := checkPodLimit(pod, stats); e != nil {
		return e
	}
	return checkContainerLimits(pod, stats, layout)
}

// checkEmptyDirs returns a limit for the first emptyDir volume whose usage exceeds its size limit. It returns nil if no
// volume exceeds its size limit.
func checkEmptyDirs(pod *corev1.Pod, stats *statsapi.PodStats) *eviction.ExceededLimit {
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

// volumeUsed returns the used bytes of the volume with this name. It returns nil if they were not measured.
func volumeUsed(stats *statsapi.PodStats, name string) (used *uint64) {
	for i := range stats.VolumeStats {
		if stats.VolumeStats[i].Name == name {
			used = stats.VolumeStats[i].UsedBytes
		}
	}
	return used
}

// checkPodLimit returns the pod's total limit of ephemeral storage if the pod exceeds it, otherwise nil.
func checkPodLimit(pod *corev1.Pod, stats *statsapi.PodStats) *eviction.ExceededLimit {
	if !hasStorageLimit(pod) {
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

// hasStorageLimit reports whether the pod has any limit of ephemeral storage. It is a cheap check before the exact
// computation, because most pods have none.
func hasStorageLimit(pod *corev1.Pod) bool {
	has := func(list corev1.ResourceList) bool { _, ok := list[corev1.ResourceEphemeralStorage]; return ok }
	for c := range containers.NotEphemeral(&pod.Spec) {
		if has(c.Resources.Limits) {
			return true
		}
	}
	return has(pod.Spec.Overhead) || pod.Spec.Resources != nil && has(pod.Spec.Resources.Limits)
}

// checkContainerLimits returns the first ephemeral-storage limit of a container that is exceeded, or nil.
func checkContainerLimits(pod *corev1.Pod, stats *statsapi.PodStats, layout eviction.Layout) *eviction.ExceededLimit {
	for i := range stats.Containers {
		s := &stats.Containers[i]
		limit := storageLimit(pod, s.Name)
		if limit == nil || limit.Value() == 0 {
			continue
		}
		used := usedBytes(s.Logs)
		// only then the writable layer counts
		if layout == eviction.SingleFS {
			used += usedBytes(s.Rootfs)
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

// storageLimit returns the ephemeral-storage limit of a regular container or sidecar, or nil.
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

// usedBytes returns the used bytes of a filesystem. It returns zero if they were not measured or are invalid, which means
// above 2^63-1.
func usedBytes(filesystem *statsapi.FsStats) uint64 {
	if filesystem == nil || filesystem.UsedBytes == nil || *filesystem.UsedBytes > math.MaxInt64 {
		return 0
	}
	return *filesystem.UsedBytes
}

// exceeds reports whether used is above limit. It returns false if used is invalid, which means above 2^63-1.
func exceeds(used uint64, limit *resource.Quantity) bool {
	if used > math.MaxInt64 {
		return false
	}
	return resource.NewQuantity(int64(used), resource.BinarySI).Cmp(*limit) > 0
}
