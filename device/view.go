// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package device

import (
	"maps"
	"slices"
	"time"
)

// Resources returns the number of devices of each resource, sorted by name. A resource that has lost its plugin stays in the list with zero devices,
// so that the Node status reports zero.
func (a *Allocator) Resources() []Resource {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	list := make([]Resource, 0, len(a.state.resources))
	for _, name := range slices.Sorted(maps.Keys(a.state.resources)) {
		r := a.state.resources[name]
		if !r.reported {
			continue // only a record or an annotation names it
		}
		entry := Resource{Name: name, Removed: r.isForgotten(now)}
		if !entry.Removed {
			entry.Capacity, entry.Allocatable = len(r.devices), r.allocatable()
		}
		list = append(list, entry)
	}
	return list
}

// Manages reports whether a plugin has registered for the resource, now or before a restart.
func (a *Allocator) Manages(resource string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state.resources[resource] != nil || a.state.dropped[resource]
}

// Allocatable returns the healthy devices of each resource that has a connected plugin. Source: GetAllocatableDevices in
// pkg/kubelet/cm/devicemanager/manager.go.
func (a *Allocator) Allocatable() map[string][]Device {
	a.mu.Lock()
	defer a.mu.Unlock()
	healthy := map[string][]Device{}
	for name, r := range a.state.resources {
		if len(r.feeds) == 0 {
			continue // as in Resource.Allocatable
		}
		for i := range r.devices {
			if r.devices[i].Healthy {
				healthy[name] = append(healthy[name], r.devices[i])
			}
		}
	}
	return healthy
}

// Claims returns the devices of each container, in the order of pod UIDs, containers and resources. It omits pods whose reservation is not complete.
func (a *Allocator) Claims() (list []Claim) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.listClaims()
}

// listClaims returns the result of Claims. The caller holds a.mu.
func (a *Allocator) listClaims() (list []Claim) {
	for _, uid := range slices.Sorted(maps.Keys(a.state.pods)) {
		h := a.state.pods[uid]
		if h.complete {
			list = append(list, h.listClaims(a.state.resources)...)
		}
	}
	return list
}

// Allocations returns the devices of all containers at one moment, by pod UID, container name and resource name. It omits pods whose reservation is
// not complete. The caller must not change the result. Device.Healthy is not set.
func (a *Allocator) Allocations() map[string]map[string]map[string][]Device {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.allocations == nil {
		a.allocations = make(map[string]map[string]map[string][]Device, len(a.state.pods))
		for uid, h := range a.state.pods {
			if h.complete {
				a.allocations[uid] = h.byContainer()
			}
		}
	}
	return a.allocations
}

// byContainer returns the devices of a pod by container and resource.
func (h *holding) byContainer() map[string]map[string][]Device {
	containers := map[string]map[string][]Device{}
	for i := range h.claims {
		c := &h.claims[i]
		name := h.pod.Containers[c.container].Name
		if containers[name] == nil {
			containers[name] = map[string][]Device{}
		}
		containers[name][c.resource] = slices.Clone(c.devices)
	}
	return containers
}

// listClaims returns the claims of a pod. Healthy of each device is its health in the last list of its plugin.
func (h *holding) listClaims(resources map[string]*resource) (list []Claim) {
	for i := range h.claims {
		c := &h.claims[i]
		devices := slices.Clone(c.devices)
		for j := range devices {
			devices[j].Healthy = resources[c.resource].health(devices[j].ID, false) == Healthy
		}
		list = append(list, Claim{
			PodUID: h.pod.UID, Container: h.pod.Containers[c.container].Name, Resource: c.resource, Devices: devices, Response: c.response,
		})
	}
	return list
}

// DeviceHealth is the health of one device that a container holds.
type DeviceHealth struct { //nolint:revive // Health is its field and a method of Allocator
	Resource, ID string
	Health       Health
}

// Health returns the health of the devices that a container holds, sorted by resource and ID.
func (a *Allocator) Health(uid, container string) (list []DeviceHealth) {
	a.mu.Lock()
	defer a.mu.Unlock()
	h := a.state.pods[uid]
	if h == nil || !h.complete {
		return nil
	}
	for i := range h.claims {
		c := &h.claims[i]
		if h.pod.Containers[c.container].Name != container {
			continue
		}
		ids := c.ids()
		slices.Sort(ids)
		for _, id := range ids {
			health := a.state.resources[c.resource].health(id, a.opts.Kubelet.AssumeHealthy)
			list = append(list, DeviceHealth{Resource: c.resource, ID: id, Health: health})
		}
	}
	return list
}
