// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// maxDeviceHealth limits the devices in the status of a pod, in bytes of JSON. With its managed fields, an API server stores five times as much for
	// a device, and refuses objects of more than 1.5 MiB.
	maxDeviceHealth = 128 << 10
	// deviceHealthOverhead is the size of a device in JSON without its ID, with the state of health.
	deviceHealthOverhead = len(`{"resourceID":"","health":"Unhealthy"},`)
)

// deviceFailures returns the times when devices of the pod's containers failed, by container name. It returns nil if
// Options.Devices does not implement [DeviceFailures].
func (w *worker) deviceFailures(pod *corev1.Pod) (failures map[string]time.Time) {
	devices, ok := w.r.opts.Devices.(DeviceFailures)
	if !ok {
		return nil
	}
	for _, list := range [...][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if !limitsDevices(&list[i]) {
				continue
			}
			if at := devices.FailedAt(w.id.UID, list[i].Name); !at.IsZero() {
				if failures == nil {
					failures = map[string]time.Time{}
				}
				failures[list[i].Name] = at
			}
		}
	}
	return failures
}

// deviceHealth returns the health of the devices of the pod's containers by container name. It returns nil without
// Options.Devices.
func (w *worker) deviceHealth(pod *corev1.Pod) map[string][]corev1.ResourceStatus {
	if w.r.opts.Devices == nil {
		return nil
	}
	var health map[string][]corev1.ResourceStatus
	for _, list := range [...][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if !limitsDevices(&list[i]) {
				continue
			}
			if health == nil {
				health = map[string][]corev1.ResourceStatus{}
			}
			health[list[i].Name] = w.r.opts.Devices.Health(w.id.UID, list[i].Name)
		}
	}
	return limitDeviceHealth(health, maxDeviceHealth)
}

// limitsDevices reports whether the container limits an extended resource.
func limitsDevices(container *corev1.Container) bool {
	for name := range container.Resources.Limits {
		if strings.Contains(string(name), "/") {
			return true
		}
	}
	return false
}

// limitDeviceHealth returns the health of the devices of a pod, by container name, without the devices that exceed limit bytes. Healthy devices are
// omitted first. Of equal devices, those with later container names and positions are omitted.
func limitDeviceHealth(health map[string][]corev1.ResourceStatus, limit int) map[string][]corev1.ResourceStatus {
	unhealthy, size := countFitting(health, isUnhealthy, limit)
	healthy, _ := countFitting(health, isHealthy, limit-size)
	total := 0
	for _, list := range health {
		for i := range list {
			total += len(list[i].Resources)
		}
	}
	if unhealthy+healthy == total {
		return health
	}
	limited := map[string][]corev1.ResourceStatus{}
	for _, name := range slices.Sorted(maps.Keys(health)) {
		for _, r := range health[name] {
			r.Resources = slices.DeleteFunc(slices.Clone(r.Resources), func(d corev1.ResourceHealth) bool {
				left := &healthy
				if isUnhealthy(d) {
					left = &unhealthy
				}
				*left--
				return *left < 0
			})
			limited[name] = append(limited[name], r)
		}
	}
	return limited
}

func isHealthy(d corev1.ResourceHealth) bool { return d.Health == corev1.ResourceHealthStatusHealthy }

func isUnhealthy(d corev1.ResourceHealth) bool { return !isHealthy(d) }

// countFitting returns the number of matching devices, in order of container names and positions, that fit into limit bytes, and their size.
func countFitting(health map[string][]corev1.ResourceStatus, matches func(corev1.ResourceHealth) bool, limit int) (count, size int) {
	for _, name := range slices.Sorted(maps.Keys(health)) {
		for i := range health[name] {
			for _, d := range health[name][i].Resources {
				if !matches(d) {
					continue
				}
				if size+len(d.ResourceID)+deviceHealthOverhead > limit {
					return count, size
				}
				count, size = count+1, size+len(d.ResourceID)+deviceHealthOverhead
			}
		}
	}
	return count, size
}
