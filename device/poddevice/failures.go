// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package poddevice

import (
	"maps"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/device"
)

// failures has the time when a device of a container became unhealthy. It is empty after a restart of the agent, which thus restarts no container.
type failures struct {
	mu sync.Mutex
	at map[string]map[string]time.Time // by pod UID and container name
}

// recordHealth records now for each container of the pods uids that has an unhealthy device. A recorded container keeps its first time until all its
// devices are healthy again. recordHealth also removes pods that no longer hold devices.
func (f *failures) recordHealth(allocator *device.Allocator, uids []string, now time.Time) {
	allocations := allocator.Allocations()
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.at, func(uid string, _ map[string]time.Time) bool { return allocations[uid] == nil })
	for _, uid := range uids {
		before := f.at[uid]
		delete(f.at, uid)
		for container := range allocations[uid] {
			if findUnhealthy(allocator, uid, container) == nil {
				continue
			}
			at, known := before[container]
			if !known {
				at = now
			}
			if f.at[uid] == nil {
				f.at[uid] = map[string]time.Time{}
			}
			f.at[uid][container] = at
		}
	}
}

// removePod removes the times of a pod.
func (f *failures) removePod(uid string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.at, uid)
}

// findUnhealthy returns an unhealthy device of a container, or nil.
func findUnhealthy(allocator *device.Allocator, uid, container string) *device.DeviceHealth {
	list := allocator.Health(uid, container)
	for i := range list {
		if list[i].Health == device.Unhealthy {
			return &list[i]
		}
	}
	return nil
}

// FailedAt returns when a device of a container became unhealthy. It returns the zero time if [Options].Unhealthy is not [RestartContainer], or all
// devices of the container are healthy. It makes Devices a lifecycle.DeviceFailures.
func (d *Devices) FailedAt(uid, container string) time.Time {
	if d.failures == nil {
		return time.Time{}
	}
	d.failures.mu.Lock()
	defer d.failures.mu.Unlock()
	return d.failures.at[uid][container]
}
