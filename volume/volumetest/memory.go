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

// Memory is a plugin whose volumes exist in memory. The zero value has none. It may be used from several goroutines.
type Memory struct {
	mu    sync.Mutex        // guards what follows
	there map[string]string // by UID/NAME: the device, or ""
	calls []string
}

var (
	_ volume.Plugin    = (*Memory)(nil)
	_ volume.Refresher = (*Memory)(nil)
)

// SetUp makes a volume, or brings it up to date.
func (m *Memory) SetUp(_ context.Context, v volume.Volume) (volume.Mount, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.there == nil {
		m.there = map[string]string{}
	}
	m.there[key(v)] = v.Device.Name
	m.calls = append(m.calls, "set up "+key(v))
	return volume.Mount{HostPath: v.Dir}, nil
}

// TearDown removes a volume.
func (m *Memory) TearDown(_ context.Context, v volume.Volume) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.there, key(v))
	m.calls = append(m.calls, "tear down "+key(v))
	return nil
}

// Shows reports whether a volume shows an object: each that has the name of a config map or of its pod.
func (m *Memory) Shows(pod *corev1.Pod, v *corev1.Volume, o volume.Object) bool {
	if o.Kind == volume.KindPod {
		return o.Name == pod.Name
	}
	return v.ConfigMap != nil && (o.Name == "" || v.ConfigMap.Name == o.Name)
}

// Volumes returns the volumes that there are, as UID/NAME, sorted.
func (m *Memory) Volumes() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []string
	for name := range m.there {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// Calls returns what the plugin was asked, in order.
func (m *Memory) Calls() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.calls)
}

// key names a volume.
func key(v volume.Volume) string { return v.UID + "/" + v.Name }

// Faulty is a plugin with faults before its calls: any func may be nil. It is a [volume.Refresher], a [volume.Stager], a
// [volume.Expander] and a [volume.SELinuxMounter] if the plugin is.
type Faulty struct {
	volume.Plugin

	// SetUpFault is called before a set-up. With an error the plugin is not called.
	SetUpFault func(ctx context.Context, v volume.Volume) error
	// TearDownFault is called before a teardown, likewise.
	TearDownFault func(ctx context.Context, v volume.Volume) error
	// StageFault, UnstageFault and ExpandFault are called before a device is staged, unstaged or grows, likewise.
	StageFault, UnstageFault, ExpandFault func(ctx context.Context, v volume.Volume) error
	// SetUpDone is called after a set-up, with its error, and returns what counts.
	SetUpDone func(v volume.Volume, err error) error
}

var (
	_ volume.Refresher = (*Faulty)(nil)
	_ volume.Stager    = (*Faulty)(nil)
	_ volume.Expander  = (*Faulty)(nil)

	_ volume.SELinuxMounter = (*Faulty)(nil)
)

// SetUp calls the plugin, unless a fault comes first.
func (f *Faulty) SetUp(ctx context.Context, v volume.Volume) (volume.Mount, error) {
	if f.SetUpFault != nil {
		if err := f.SetUpFault(ctx, v); err != nil {
			return volume.Mount{}, err
		}
	}
	m, err := f.Plugin.SetUp(ctx, v)
	if f.SetUpDone != nil {
		err = f.SetUpDone(v, err)
	}
	return m, err
}

// TearDown calls the plugin, unless a fault comes first.
func (f *Faulty) TearDown(ctx context.Context, v volume.Volume) error {
	if f.TearDownFault != nil {
		if err := f.TearDownFault(ctx, v); err != nil {
			return err
		}
	}
	return f.Plugin.TearDown(ctx, v)
}

// Shows asks the plugin, if it is a [volume.Refresher].
func (f *Faulty) Shows(pod *corev1.Pod, v *corev1.Volume, o volume.Object) bool {
	r, ok := f.Plugin.(volume.Refresher)
	return ok && r.Shows(pod, v, o)
}

// Device asks the plugin, if it is a [volume.Stager].
func (f *Faulty) Device(ctx context.Context, v volume.Volume) (volume.Device, error) {
	if s, ok := f.Plugin.(volume.Stager); ok {
		return s.Device(ctx, v)
	}
	return volume.Device{}, nil
}

// Stage calls the plugin, unless a fault comes first.
func (f *Faulty) Stage(ctx context.Context, v volume.Volume) error {
	if f.StageFault != nil {
		if err := f.StageFault(ctx, v); err != nil {
			return err
		}
	}
	return f.Plugin.(volume.Stager).Stage(ctx, v) // which has said what the device is
}

// Unstage calls the plugin, unless a fault comes first.
func (f *Faulty) Unstage(ctx context.Context, v volume.Volume) error {
	if f.UnstageFault != nil {
		if err := f.UnstageFault(ctx, v); err != nil {
			return err
		}
	}
	return f.Plugin.(volume.Stager).Unstage(ctx, v)
}

// MountsWithLabel asks the plugin, if it is a [volume.SELinuxMounter].
func (f *Faulty) MountsWithLabel(ctx context.Context, v volume.Volume) (bool, error) {
	if m, ok := f.Plugin.(volume.SELinuxMounter); ok {
		return m.MountsWithLabel(ctx, v)
	}
	return false, nil
}

// NodeExpand calls the plugin, if it is a [volume.Expander], unless a fault comes first.
func (f *Faulty) NodeExpand(ctx context.Context, v volume.Volume, e volume.Expansion) error {
	if f.ExpandFault != nil {
		if err := f.ExpandFault(ctx, v); err != nil {
			return err
		}
	}
	if x, ok := f.Plugin.(volume.Expander); ok {
		return x.NodeExpand(ctx, v, e)
	}
	return nil
}

// Hang is a fault that lasts until the context ends.
func Hang(ctx context.Context, _ volume.Volume) error {
	<-ctx.Done()
	return ctx.Err()
}

// Latency returns a fault that is none, but takes a while.
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
