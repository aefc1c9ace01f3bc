// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package devicetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/seed81659283/nodeagent/device"
)

// Recorder is a [device.Feed] that records the last list. The zero value has no list.
type Recorder struct {
	mu      sync.Mutex // guards the fields below
	devices []device.Device
	updates int
	closed  bool
}

var _ device.Feed = (*Recorder)(nil)

// Update records devices, or returns an error for a list that a feed must reject. After Close it does nothing.
func (r *Recorder) Update(devices []device.Device) error {
	if len(devices) > device.MaxDevices {
		return fmt.Errorf("list has %d devices, more than %d", len(devices), device.MaxDevices)
	}
	seen := make(map[string]bool, len(devices))
	for i := range devices {
		switch id := devices[i].ID; {
		case id == "":
			return errors.New("a device has no ID")
		case len(id) > device.MaxIDLength:
			return fmt.Errorf("device %.32q... has an ID of %d bytes, more than %d", id, len(id), device.MaxIDLength)
		case seen[id]:
			return fmt.Errorf("device %q is listed twice", id)
		}
		seen[devices[i].ID] = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.devices, r.updates = slices.Clone(devices), r.updates+1
	}
	return nil
}

// Close records that the plugin is no longer connected.
func (r *Recorder) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}

// Devices returns the last list, and the number of lists so far.
func (r *Recorder) Devices() (last []device.Device, updates int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.devices), r.updates
}

// Closed reports whether Close was called.
func (r *Recorder) Closed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed
}
