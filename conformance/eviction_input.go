// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Mi is the unit of memory and disk sizes below: 1 MiB.
const Mi = 1 << 20

// EvictionPod returns a random pod and its statistics, or nil if it was not measured. The number makes name and UID unique,
// and requests and usage different, so that few pods are equal in the eviction order.
func EvictionPod(c *Choices, i int) (*corev1.Pod, *statsapi.PodStats) {
	pod := &corev1.Pod{}
	pod.Name, pod.Namespace, pod.UID = fmt.Sprint("pod", i), "default", types.UID(fmt.Sprint("uid-", i))
	pod.Annotations = Pick(c, nil, nil, nil, annotations(c))
	if !c.OneIn(3) {
		priority := Pick[int32](c, 0, 0, -1, 100, 2000000000)
		pod.Spec.Priority = &priority
	}
	if !c.OneIn(4) {
		seconds := Pick[int64](c, 30, 0, 5, 100)
		pod.Spec.TerminationGracePeriodSeconds = &seconds
	}
	for n := range Pick(c, 1, 2, 3) {
		pod.Spec.Containers = append(pod.Spec.Containers, evictionContainer(c, fmt.Sprint("c", n), n+i*4))
	}
	if c.OneIn(4) {
		init := evictionContainer(c, "i", 3+i*4)
		if c.OneIn(2) {
			always := corev1.ContainerRestartPolicyAlways
			init.RestartPolicy = &always
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, init)
	}
	if c.OneIn(8) {
		pod.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceMemory: bytesOf(c, i)}}
	}
	if c.OneIn(8) {
		pod.Spec.Overhead = corev1.ResourceList{corev1.ResourceMemory: bytesOf(c, i), corev1.ResourceEphemeralStorage: bytesOf(c, i)}
	}
	if c.OneIn(8) {
		pod.Spec.Tolerations = []corev1.Toleration{{
			Key:      Pick(c, "", corev1.TaintNodeMemoryPressure, corev1.TaintNodeDiskPressure),
			Operator: Pick(c, corev1.TolerationOpExists, corev1.TolerationOpEqual, "", corev1.TolerationOpLt),
			Effect:   Pick(c, "", corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute), Value: Pick(c, "", "1"),
		}}
	}
	evictionVolumes(c, pod, i)
	if c.OneIn(12) {
		return pod, nil
	}
	return pod, podStats(c, pod)
}

// evictionContainer returns a container with random requests for memory and local storage. Containers with different i have
// different amounts.
func evictionContainer(c *Choices, name string, i int) corev1.Container {
	container := corev1.Container{Name: name}
	container.Resources.Requests = corev1.ResourceList{}
	for _, r := range []corev1.ResourceName{corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		if !c.OneIn(3) {
			container.Resources.Requests[r] = bytesOf(c, i)
		}
	}
	if c.OneIn(6) {
		container.Resources.Limits = corev1.ResourceList{corev1.ResourceEphemeralStorage: Pick(c, *resource.NewQuantity(300*Mi, resource.BinarySI), resource.Quantity{})}
	}
	return container
}

// bytesOf returns a random number of MiB plus i bytes. The amounts of containers with different i therefore differ.
func bytesOf(c *Choices, i int) resource.Quantity {
	return *resource.NewQuantity(int64(c.Int(200))*Mi+int64(i), resource.BinarySI)
}

// evictionVolumes adds up to two random volumes to pod. Their sizes depend on i, so that they differ from pod to pod.
func evictionVolumes(c *Choices, pod *corev1.Pod, i int) {
	for n := range Pick(c, 0, 0, 1, 2) {
		v := corev1.Volume{Name: fmt.Sprint("v", n)}
		switch c.Int(6) {
		case 0:
			v.EmptyDir = &corev1.EmptyDirVolumeSource{}
		case 1:
			limit := Pick(c, bytesOf(c, i), resource.Quantity{})
			v.EmptyDir = &corev1.EmptyDirVolumeSource{SizeLimit: &limit}
		case 2:
			limit := bytesOf(c, i)
			v.EmptyDir = &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: &limit}
		case 3:
			v.HostPath = &corev1.HostPathVolumeSource{Path: "/data"}
		case 4:
			v.ConfigMap = &corev1.ConfigMapVolumeSource{}
		default:
			v.Secret = &corev1.SecretVolumeSource{}
		}
		pod.Spec.Volumes = append(pod.Spec.Volumes, v)
	}
}

// podStats returns random statistics of pod. Each amount is a number of MiB, or missing.
func podStats(c *Choices, pod *corev1.Pod) *statsapi.PodStats {
	s := &statsapi.PodStats{PodRef: statsapi.PodReference{Name: pod.Name, Namespace: pod.Namespace, UID: string(pod.UID)}}
	if !c.OneIn(12) {
		s.Memory = &statsapi.MemoryStats{WorkingSetBytes: used(c)}
	}
	if !c.OneIn(12) {
		s.ProcessStats = &statsapi.ProcessStats{ProcessCount: number(c, 200, 1)}
	}
	if !c.OneIn(4) {
		s.EphemeralStorage = fs(c)
	}
	names := []string{"elsewhere"}
	for _, container := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
		names = append(names, container.Name)
	}
	for _, name := range names {
		if c.OneIn(6) {
			continue
		}
		container := statsapi.ContainerStats{Name: name, Rootfs: fs(c), Logs: fs(c)}
		if !c.OneIn(8) {
			container.Memory = &statsapi.MemoryStats{WorkingSetBytes: used(c)}
		}
		s.Containers = append(s.Containers, container)
	}
	for _, v := range pod.Spec.Volumes {
		stats := fs(c)
		if stats == nil || stats.UsedBytes == nil {
			continue // the kubelet does not survive that
		}
		s.VolumeStats = append(s.VolumeStats, statsapi.VolumeStats{Name: v.Name, FsStats: *stats})
	}
	return s
}

// fs returns random statistics of a filesystem, or nil.
func fs(c *Choices) *statsapi.FsStats {
	if c.OneIn(8) {
		return nil
	}
	f := &statsapi.FsStats{UsedBytes: used(c), InodesUsed: number(c, 20, 16)}
	return f
}

// used returns a random amount of used memory or storage in bytes. For an unknown amount it returns nil.
func used(c *Choices) *uint64 { return number(c, 250, Mi) }

// number returns a random multiple of unit that is smaller than below*unit. For an unknown number it returns nil.
func number(c *Choices, below int, unit uint64) *uint64 {
	if c.OneIn(12) {
		return nil
	}
	n := uint64(c.Int(below)) * unit
	return &n
}

// EvictionSettings returns random values of evictionHard, evictionSoft, evictionSoftGracePeriod and evictionMinimumReclaim,
// for these eviction signals. If sound is true, the configuration is valid.
func EvictionSettings(c *Choices, sound bool, signals []string) (hard, soft, grace, reclaim map[string]string) {
	hard, soft, grace, reclaim = map[string]string{}, map[string]string{}, map[string]string{}, map[string]string{}
	value := func() string {
		text := Pick(c, "10%", "100Mi", "500Mi", "25%", "12.5%", "1G", "0%", "100%")
		if !sound && c.OneIn(3) {
			text = strings.TrimSpace(Pick(c, "", "-", "+", " ") + fmt.Sprint(c.Int64()>>c.Int(64)) + Pick(c, "", ".5", "e1", "e-3", ".") +
				Pick(c, "", "%", "Mi", "%%", "m", "Ei", "x", "n"))
		}
		if !sound && c.OneIn(16) {
			text = Pick(c, "NaN%", "", "%", ".", "Inf%", "0x1p3%", "-0", "Mi")
		}
		return text
	}
	name := func(i int) string {
		if !sound && c.OneIn(32) {
			return Pick(c, "mem.available", "", "memory")
		}
		return signals[i]
	}
	for i := range signals {
		if !c.OneIn(3) {
			hard[name(i)] = value()
		}
		if c.OneIn(3) {
			s := name(i)
			soft[s] = value()
			if sound || !c.OneIn(8) {
				grace[s] = Pick(c, "10s", "0s", "30s", "1m")
			}
		}
		if !sound && c.OneIn(8) {
			grace[name(i)] = Pick(c, "1m", "-1s", "x", "1")
		}
		if c.OneIn(3) {
			reclaim[name(i)] = value()
			if v := reclaim[signals[i]]; sound && (v == "0%" || v == "100%") { // 0% is invalid, and 100% can never be satisfied
				delete(reclaim, signals[i])
			}
		}
	}
	return hard, soft, grace, reclaim
}
