// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volumetest

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/seed81659283/nodeagent/volume"
)

// MemoryStager is a [MemoryPlugin] that also stages and expands the volumes that have a claim. It records violations: a set-up on
// a device that is not staged, and an unstage of a device that a volume uses. The zero value is empty.
type MemoryStager struct {
	MemoryPlugin

	staged     map[string]bool  // by device name; mu of MemoryPlugin guards these fields
	sizes      map[string]int64 // bytes, by device name
	violations []string
}

var (
	_ volume.Stager   = (*MemoryStager)(nil)
	_ volume.Expander = (*MemoryStager)(nil)
)

// Device returns a device with the name of the volume's PV. It returns the zero value if the volume has no PV.
func (m *MemoryStager) Device(_ context.Context, vol volume.Volume) (volume.Device, error) {
	if vol.PV == nil {
		return volume.Device{}, nil
	}
	return volume.Device{Name: vol.PV.Name, Dir: "memory/" + vol.PV.Name, Data: map[string]string{"of": vol.PV.Name}}, nil
}

// Stage records that the device of vol is staged.
func (m *MemoryStager) Stage(_ context.Context, vol volume.Volume) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.staged == nil {
		m.staged = map[string]bool{}
	}
	m.staged[vol.Device.Name] = true
	m.calls = append(m.calls, "stage "+vol.Device.Name)
	return nil
}

// Unstage records that the device of the volume is not staged. If a volume on the device is still set up, Unstage also
// records a violation.
func (m *MemoryStager) Unstage(_ context.Context, vol volume.Volume) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, device := range m.devices {
		if device == vol.Device.Name {
			m.violations = append(m.violations, fmt.Sprintf("unstage %s, which %s uses", vol.Device.Name, name))
		}
	}
	if vol.Device.Data["of"] != vol.Device.Name {
		m.violations = append(m.violations, fmt.Sprintf("unstage %s without what was recorded of it", vol.Device.Name))
	}
	delete(m.staged, vol.Device.Name)
	delete(m.sizes, vol.Device.Name)
	m.calls = append(m.calls, "unstage "+vol.Device.Name)
	return nil
}

// SetUp records that the volume is set up. If the volume has a device that is not staged, SetUp also records a violation.
func (m *MemoryStager) SetUp(ctx context.Context, vol volume.Volume) (volume.Mount, error) {
	m.checkStaged("set up", vol)
	return m.MemoryPlugin.SetUp(ctx, vol)
}

// NodeExpand records the new size of the device of vol.
func (m *MemoryStager) NodeExpand(_ context.Context, vol volume.Volume, expansion volume.Expansion) error {
	m.checkStaged("expand", vol)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sizes == nil {
		m.sizes = map[string]int64{}
	}
	m.sizes[vol.Device.Name] = expansion.NewSize
	m.calls = append(m.calls, fmt.Sprintf("expand %s from %d to %d", vol.Device.Name, expansion.OldSize, expansion.NewSize))
	return nil
}

// checkStaged records a violation if the volume has a device that is not staged. operation is the name of the call in the
// violation.
func (m *MemoryStager) checkStaged(operation string, vol volume.Volume) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if vol.Device.Name != "" && !m.staged[vol.Device.Name] {
		m.violations = append(m.violations, fmt.Sprintf("%s %s on %s, which is not staged", operation, volumeKey(vol), vol.Device.Name))
	}
}

// Staged returns the sorted names of the staged devices.
func (m *MemoryStager) Staged() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.staged))
}

// Violations returns the calls that came in a wrong order, such as a SetUp before Stage.
func (m *MemoryStager) Violations() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.violations)
}
