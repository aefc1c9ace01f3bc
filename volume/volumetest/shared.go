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

// Shared is a [Memory] whose volumes with a claim are staged, and grow. Each call that comes when it must not is noted: what is set up on
// a device that is not staged, or unstaged while it is used. The zero value has nothing.
type Shared struct {
	Memory

	staged map[string]bool  // by the name of the device; guarded by mu of Memory, as what follows
	sizes  map[string]int64 // bytes
	wrong  []string
}

var (
	_ volume.Stager   = (*Shared)(nil)
	_ volume.Expander = (*Shared)(nil)
)

// Device returns a device of the name of the PV. A volume without a claim has none.
func (m *Shared) Device(_ context.Context, v volume.Volume) (volume.Device, error) {
	if v.PV == nil {
		return volume.Device{}, nil
	}
	return volume.Device{Name: v.PV.Name, Dir: "memory/" + v.PV.Name, Data: map[string]string{"of": v.PV.Name}}, nil
}

// Stage makes a device ready.
func (m *Shared) Stage(_ context.Context, v volume.Volume) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.staged == nil {
		m.staged = map[string]bool{}
	}
	m.staged[v.Device.Name] = true
	m.calls = append(m.calls, "stage "+v.Device.Name)
	return nil
}

// Unstage undoes that.
func (m *Shared) Unstage(_ context.Context, v volume.Volume) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, device := range m.there {
		if device == v.Device.Name {
			m.wrong = append(m.wrong, fmt.Sprintf("unstage %s, which %s uses", v.Device.Name, name))
		}
	}
	if v.Device.Data["of"] != v.Device.Name {
		m.wrong = append(m.wrong, fmt.Sprintf("unstage %s without what was recorded of it", v.Device.Name))
	}
	delete(m.staged, v.Device.Name)
	delete(m.sizes, v.Device.Name)
	m.calls = append(m.calls, "unstage "+v.Device.Name)
	return nil
}

// SetUp makes a volume of a device that is staged.
func (m *Shared) SetUp(ctx context.Context, v volume.Volume) (volume.Mount, error) {
	m.use("set up", v)
	return m.Memory.SetUp(ctx, v)
}

// NodeExpand notes the size of a device.
func (m *Shared) NodeExpand(_ context.Context, v volume.Volume, e volume.Expansion) error {
	m.use("expand", v)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sizes == nil {
		m.sizes = map[string]int64{}
	}
	m.sizes[v.Device.Name] = e.New
	m.calls = append(m.calls, fmt.Sprintf("expand %s from %d to %d", v.Device.Name, e.Old, e.New))
	return nil
}

// use notes a use of a device that is not staged.
func (m *Shared) use(what string, v volume.Volume) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if v.Device.Name != "" && !m.staged[v.Device.Name] {
		m.wrong = append(m.wrong, fmt.Sprintf("%s %s on %s, which is not staged", what, key(v), v.Device.Name))
	}
}

// Staged returns the names of the devices that are staged, sorted.
func (m *Shared) Staged() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.staged))
}

// Wrong returns the calls that came when they must not.
func (m *Shared) Wrong() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.wrong)
}
