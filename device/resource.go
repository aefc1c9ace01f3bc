// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package device

import (
	"fmt"
	"slices"
	"time"
)

// Limits of the devices of one plugin.
const (
	MaxDevices  = 1 << 16 // devices of one resource
	MaxIDLength = 1 << 10 // bytes of an ID
)

// maxListed limits the memory of the devices of all plugins together, in bytes, as listSize computes it.
const maxListed = 64 << 20

// deviceSize is the memory of a device without its ID, in bytes, in the list and in the index.
const deviceSize = 128

// listSize returns the memory of a list of devices, in bytes.
func listSize(devices []Device) (bytes int) {
	for i := range devices {
		bytes += len(devices[i].ID) + deviceSize
	}
	return bytes
}

// StopGrace is how long the devices of a resource count as capacity after its plugin has disconnected. It is also how long a pod waits for a plugin
// after a restart of the agent. Source: endpointStopGracePeriod in pkg/kubelet/cm/devicemanager/endpoint.go.
const StopGrace = 5 * time.Minute

// Health is the health of a device that a container holds.
type Health string

// The values of [Health], as in allocatedResourcesStatus of a container status.
const (
	Healthy   Health = "Healthy"
	Unhealthy Health = "Unhealthy"
	Unknown   Health = "Unknown" // no plugin reports the device
)

// resource is the state of one resource: its devices, its plugins, and the devices in use.
type resource struct {
	name    string
	devices []Device       // the last list; replaced, never changed
	index   map[string]int // position of an ID in devices
	size    int            // memory of devices, see listSize
	feeds   []*feed        // connected plugins, the newest last
	stopped time.Time      // when the last plugin disconnected; zero: a plugin has listed devices since
	waiting time.Time      // until when pods wait for the first list; zero: a plugin has listed devices
	inUse   map[string]bool

	registered bool          // a plugin was connected, now or according to the record; false again when it is forgotten
	reported   bool          // was registered in this process: the Node has the resource
	options    PluginOptions // of the last connected plugin
	sockets    []string      // of the last connected plugins, the newest last
}

func newResource(name string, now time.Time) *resource {
	return &resource{name: name, index: map[string]int{}, stopped: now, waiting: now.Add(StopGrace), inUse: map[string]bool{}}
}

// newestFeed returns the plugin that is called for this resource, or nil if none is connected. r may be nil.
func (r *resource) newestFeed() *feed {
	if r == nil || len(r.feeds) == 0 {
		return nil
	}
	return r.feeds[len(r.feeds)-1]
}

// isAsked reports whether GetPreferredAllocation must be called for c: the plugin requests this call, and c has open devices.
func (r *resource) isAsked(c *Choice) bool {
	f := r.newestFeed()
	return f != nil && f.options.Preferred && len(c.Open) > 0
}

// setDevices replaces the list of devices; index has the position of each ID. capacity is true if the number of all or of healthy devices has
// changed. health has the IDs of new, removed and changed devices.
func (r *resource) setDevices(devices []Device, index map[string]int) (capacity bool, health map[string]bool) {
	before, wasAllocatable := len(r.devices), r.allocatable()
	health = map[string]bool{}
	for i := range devices {
		if at, ok := r.index[devices[i].ID]; !ok || r.devices[at].Healthy != devices[i].Healthy {
			health[devices[i].ID] = true
		}
	}
	for id := range r.index {
		if _, ok := index[id]; !ok {
			health[id] = true
		}
	}
	r.devices, r.index, r.size, r.waiting = devices, index, listSize(devices), time.Time{}
	return before != len(devices) || wasAllocatable != r.allocatable(), health
}

// deviceIDs returns the IDs of all devices.
func (r *resource) deviceIDs() map[string]bool {
	ids := make(map[string]bool, len(r.devices))
	for id := range r.index {
		ids[id] = true
	}
	return ids
}

// forgetDevices removes the devices of a resource that has had no plugin for more than [StopGrace]. It returns false if nothing has changed.
func (r *resource) forgetDevices(now time.Time) bool {
	if !r.isForgotten(now) || !r.registered && len(r.devices) == 0 && r.waiting.IsZero() {
		return false
	}
	r.devices, r.index, r.size, r.waiting = nil, map[string]int{}, 0, time.Time{}
	r.registered, r.sockets = false, nil
	return true
}

// isForgotten reports whether the resource has had no plugin for more than [StopGrace].
func (r *resource) isForgotten(now time.Time) bool {
	return len(r.feeds) == 0 && now.Sub(r.stopped) > StopGrace
}

// allocatable returns the number of healthy devices: zero if no plugin is connected.
func (r *resource) allocatable() (count int) {
	if len(r.feeds) == 0 {
		return 0
	}
	for i := range r.devices {
		if r.devices[i].Healthy {
			count++
		}
	}
	return count
}

// health returns the health of the device with this ID, or Unknown if no connected plugin lists it. If assume is true, it returns the last known
// health or Healthy in place of Unknown, as in the kubelet.
func (r *resource) health(id string, assume bool) Health {
	at, ok := r.index[id]
	switch {
	case (!ok || len(r.feeds) == 0) && !assume:
		return Unknown
	case !ok || r.devices[at].Healthy:
		return Healthy
	}
	return Unhealthy
}

// device returns the device with this ID. If no plugin has listed the device, only the field ID is set.
func (r *resource) device(id string) Device {
	if at, ok := r.index[id]; ok {
		return r.devices[at]
	}
	return Device{ID: id}
}

// markRegistered records that a plugin was connected.
func (r *resource) markRegistered() { r.registered, r.reported = true, true }

// asPool returns the devices for [Pick] and [Hints], all unhealthy if no plugin is connected. The result is valid until the state changes.
func (r *resource) asPool() *Pool {
	p := &Pool{Resource: r.name, Devices: r.devices, InUse: r.inUse}
	if len(r.feeds) == 0 {
		p.Devices = slices.Clone(r.devices)
		for i := range p.Devices {
			p.Devices[i].Healthy = false
		}
	}
	return p
}

// indexDevices returns the position of each ID in devices. An ID that is empty, too long or not unique is an error, as are more than MaxDevices.
func indexDevices(devices []Device) (map[string]int, error) {
	if len(devices) > MaxDevices {
		return nil, fmt.Errorf("list has %d devices, more than %d", len(devices), MaxDevices)
	}
	index := make(map[string]int, len(devices))
	for i := range devices {
		id := devices[i].ID
		_, twice := index[id]
		switch {
		case id == "":
			return nil, fmt.Errorf("device %d of the list has no ID", i)
		case len(id) > MaxIDLength:
			return nil, fmt.Errorf("the ID of device %d has %d bytes, more than %d: %.40q", i, len(id), MaxIDLength, id)
		case twice:
			return nil, fmt.Errorf("device %q is listed twice", id)
		}
		index[id] = i
	}
	return index, nil
}
