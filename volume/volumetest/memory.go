// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volumetest

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/volume"
)

// MemoryPlugin is a [volume.Plugin] that stores its volumes in memory and records its calls. The zero value is empty. It may be
// used from several goroutines.
type MemoryPlugin struct {
	mu      sync.Mutex        // guards the fields below
	devices map[string]string // volumes that are set up: device name, or "", by UID/NAME
	calls   []string
}

var (
	_ volume.Plugin    = (*MemoryPlugin)(nil)
	_ volume.Refresher = (*MemoryPlugin)(nil)
)

// SetUp records that a volume is set up or updated.
func (m *MemoryPlugin) SetUp(_ context.Context, vol volume.Volume) (volume.Mount, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.devices == nil {
		m.devices = map[string]string{}
	}
	m.devices[volumeKey(vol)] = vol.Device.Name
	m.calls = append(m.calls, "set up "+volumeKey(vol))
	return volume.Mount{HostPath: vol.Dir}, nil
}

// TearDown records that vol is not set up.
func (m *MemoryPlugin) TearDown(_ context.Context, vol volume.Volume) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.devices, volumeKey(vol))
	m.calls = append(m.calls, "tear down "+volumeKey(vol))
	return nil
}

// Shows reports whether the object is the pod itself, or the config map that the volume shows.
func (m *MemoryPlugin) Shows(pod *corev1.Pod, vol *corev1.Volume, object volume.Object) bool {
	if object.Kind == volume.KindPod {
		return object.Name == pod.Name
	}
	return vol.ConfigMap != nil && (object.Name == "" || vol.ConfigMap.Name == object.Name)
}

// Volumes returns the volumes that are set up, in the form UID/NAME and sorted.
func (m *MemoryPlugin) Volumes() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []string
	for name := range m.devices {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// Calls returns the calls of SetUp and TearDown in order, such as "set up UID/NAME".
func (m *MemoryPlugin) Calls() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.calls)
}

// volumeKey returns UID/NAME.
func volumeKey(v volume.Volume) string { return v.UID + "/" + v.Name }

// FaultyPlugin is a [volume.Plugin] that wraps another plugin. It calls a function, if not nil, before or after each method of
// the wrapped plugin, to inject errors. It also implements [volume.Refresher], [volume.Stager], [volume.Expander] and
// [volume.SELinuxMounter], for a wrapped plugin that does.
type FaultyPlugin struct {
	volume.Plugin

	// SetUpFault is called before SetUp. Its error is returned, without calling the plugin.
	SetUpFault func(ctx context.Context, v volume.Volume) error
	// TearDownFault is called before TearDown. Its error is returned, without calling the plugin.
	TearDownFault func(ctx context.Context, v volume.Volume) error
	// StageFault, UnstageFault and ExpandFault are called before Stage, Unstage and NodeExpand. Their errors are returned,
	// without calling the plugin.
	StageFault, UnstageFault, ExpandFault func(ctx context.Context, v volume.Volume) error
	// AfterSetUp is called after SetUp with its error. Its result replaces the error.
	AfterSetUp func(v volume.Volume, err error) error
}

var (
	_ volume.Refresher = (*FaultyPlugin)(nil)
	_ volume.Stager    = (*FaultyPlugin)(nil)
	_ volume.Expander  = (*FaultyPlugin)(nil)

	_ volume.SELinuxMounter = (*FaultyPlugin)(nil)
)

// SetUp calls SetUpFault, SetUp of the wrapped plugin, and AfterSetUp.
func (f *FaultyPlugin) SetUp(ctx context.Context, vol volume.Volume) (volume.Mount, error) {
	if f.SetUpFault != nil {
		if err := f.SetUpFault(ctx, vol); err != nil {
			return volume.Mount{}, err
		}
	}
	m, err := f.Plugin.SetUp(ctx, vol)
	if f.AfterSetUp != nil {
		err = f.AfterSetUp(vol, err)
	}
	return m, err
}

// TearDown calls TearDownFault and TearDown of the wrapped plugin.
func (f *FaultyPlugin) TearDown(ctx context.Context, vol volume.Volume) error {
	if f.TearDownFault != nil {
		if err := f.TearDownFault(ctx, vol); err != nil {
			return err
		}
	}
	return f.Plugin.TearDown(ctx, vol)
}

// Shows calls Shows of the wrapped plugin, if that is a [volume.Refresher].
func (f *FaultyPlugin) Shows(pod *corev1.Pod, vol *corev1.Volume, object volume.Object) bool {
	r, ok := f.Plugin.(volume.Refresher)
	return ok && r.Shows(pod, vol, object)
}

// Device calls Device of the wrapped plugin, if that is a [volume.Stager].
func (f *FaultyPlugin) Device(ctx context.Context, vol volume.Volume) (volume.Device, error) {
	if s, ok := f.Plugin.(volume.Stager); ok {
		return s.Device(ctx, vol)
	}
	return volume.Device{}, nil
}

// Stage calls StageFault and Stage of the wrapped plugin.
func (f *FaultyPlugin) Stage(ctx context.Context, vol volume.Volume) error {
	if f.StageFault != nil {
		if err := f.StageFault(ctx, vol); err != nil {
			return err
		}
	}
	return f.Plugin.(volume.Stager).Stage(ctx, vol) // Device has returned a device, so that the plugin is a Stager
}

// Unstage calls UnstageFault and Unstage of the wrapped plugin.
func (f *FaultyPlugin) Unstage(ctx context.Context, vol volume.Volume) error {
	if f.UnstageFault != nil {
		if err := f.UnstageFault(ctx, vol); err != nil {
			return err
		}
	}
	return f.Plugin.(volume.Stager).Unstage(ctx, vol)
}

// MountsWithLabel calls MountsWithLabel of the wrapped plugin. It returns false if that is no [volume.SELinuxMounter].
func (f *FaultyPlugin) MountsWithLabel(ctx context.Context, vol volume.Volume) (bool, error) {
	if m, ok := f.Plugin.(volume.SELinuxMounter); ok {
		return m.MountsWithLabel(ctx, vol)
	}
	return false, nil
}

// NodeExpand calls ExpandFault, and returns its error if that is not nil. Then it calls NodeExpand of the wrapped plugin, if
// that is a [volume.Expander].
func (f *FaultyPlugin) NodeExpand(ctx context.Context, vol volume.Volume, expansion volume.Expansion) error {
	if f.ExpandFault != nil {
		if err := f.ExpandFault(ctx, vol); err != nil {
			return err
		}
	}
	if x, ok := f.Plugin.(volume.Expander); ok {
		return x.NodeExpand(ctx, vol, expansion)
	}
	return nil
}

// Hang blocks until ctx ends, and returns the error of ctx. It is a value for fields of [FaultyPlugin] such as SetUpFault.
func Hang(ctx context.Context, _ volume.Volume) error {
	<-ctx.Done()
	return ctx.Err()
}

// Latency returns a function that blocks for the duration d and returns nil. If ctx ends first, the function returns its
// error. It is a value for fields of [FaultyPlugin] such as SetUpFault.
func Latency(d time.Duration) func(ctx context.Context, v volume.Volume) error {
	return func(ctx context.Context, _ volume.Volume) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
