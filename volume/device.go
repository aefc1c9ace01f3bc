// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/volume/plan"
	"github.com/seed81659283/nodeagent/internal/volume/selinux"
)

// The limits of what a plugin says of a device.
const (
	maxDeviceName = 1 << 10
	maxDeviceData = 16 << 10
)

// validate returns an error for a device that cannot be recorded.
func (d *Device) validate() error {
	size := 0
	for k, v := range d.Data {
		size += len(k) + len(v)
	}
	switch {
	case d.Name == "" || len(d.Name) > maxDeviceName:
		return fmt.Errorf("device %.256q has no valid name", d.Name)
	case size > maxDeviceData:
		return fmt.Errorf("device %q: more than %d bytes of data", d.Name, maxDeviceData)
	}
	for _, dir := range []string{d.Dir, d.MapDir} {
		if dir != "" && (!filepath.IsLocal(dir) || dir != filepath.Clean(dir)) {
			return fmt.Errorf("device %q: directory %.256q is not below that of the plugins", d.Name, dir)
		}
	}
	return nil
}

// device is what volumes of several pods share.
type device struct {
	plan.Device
	spec    Device // as it is in the records
	kind    string // the plugin, by its name
	on      string // name of the volume on disk
	block   bool
	label   string             // that it is mounted with
	holders map[*podState]bool // pods with a record of it
	size    int64              // bytes that it has on this node, where that is known
	path    string             // where an Attacher has attached it
	err     error              // of the step that has failed last; nil after one that succeeded

	cancel context.CancelFunc // ends the step under way; nil: there is none
}

// deviceName is the name of a device among those of all plugins, in the kubelet that of the volume on the node.
func deviceName(kind, name string) string { return kind + "/" + name }

// hold notes that a pod has a record of a volume that shares a device, and returns that. It is there from then on.
func (v *Volumes) hold(p *podState, r recordedVolume) *device {
	name := deviceName(r.Plugin, r.Device.Name)
	d := v.devices[name]
	if d == nil {
		d = &device{Device: plan.Device{Name: name}, kind: r.Plugin, holders: map[*podState]bool{}}
		v.devices[name] = d
		v.state.Devices = append(v.state.Devices, &d.Device)
	}
	d.spec, d.on, d.block, d.label = *r.Device, r.spec(), r.Block, r.SELinuxLabel
	d.holders[p] = true
	return d
}

// reservation is a volume that shares a device, and is about to be in the record of a pod.
type reservation struct {
	pod    *podState
	volume recordedVolume
}

// reserve notes that a pod is about to have a record of a volume. A volume that has the device of another one must have it at the same
// place and in the same way, for what is made of it is undone by either.
func (v *Volumes) reserve(p *podState, r recordedVolume) error {
	if r.Device == nil {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if d := v.devices[deviceName(r.Plugin, r.Device.Name)]; d != nil {
		if err := r.conflict(recordedVolume{Dir: d.on, Device: &d.spec, Block: d.block, SELinuxLabel: d.label}); err != nil {
			return err
		}
	}
	for _, other := range v.reserved {
		if o := other.volume; o.Plugin == r.Plugin && o.Device.Name == r.Device.Name {
			if err := r.conflict(o); err != nil {
				return err
			}
		}
	}
	v.reserved = append(v.reserved, reservation{p, r})
	return nil
}

// unreserve forgets the reservations of a pod, whose record has been written or will not be.
func (v *Volumes) unreserve(p *podState) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.reserved = slices.DeleteFunc(v.reserved, func(r reservation) bool { return r.pod == p })
}

// conflict returns an error for a volume whose device is known by another one, in another way.
func (v *recordedVolume) conflict(known recordedVolume) error {
	d := known.Device
	if v.Device.Dir == d.Dir && v.Device.MapDir == d.MapDir && v.Block == known.Block {
		return selinux.Conflict(v.spec(), known.SELinuxLabel, v.SELinuxLabel)
	}
	return fmt.Errorf("volume %s (%s) is of the same device as volume %s (%s), which is in use: %.256q",
		v.spec(), place(v.Device, v.Block), known.spec(), place(d, known.Block), d.Name)
}

// place says in which way a device is had, and where.
func place(d *Device, block bool) string {
	mode, dir := corev1.PersistentVolumeFilesystem, d.Dir
	if block {
		mode = corev1.PersistentVolumeBlock
	}
	if dir == "" {
		dir = d.MapDir
	}
	return fmt.Sprintf("%s at %s", mode, dir)
}

// drop undoes hold. A device that no record names is forgotten, as nothing is left of it.
func (v *Volumes) drop(p *podState, d *device) {
	delete(d.holders, p)
	if len(d.holders) > 0 {
		return
	}
	delete(v.devices, d.Name)
	v.state.Devices = slices.DeleteFunc(v.state.Devices, func(other *plan.Device) bool { return other == &d.Device })
}

// last reports whether the record of a pod is the only one that has a device of which something may be left.
func (d *device) last(p *podState) bool {
	return len(d.holders) == 1 && d.holders[p] && (d.Phase != plan.Absent || d.Step != plan.None || d.StuckMaking || d.StuckRemoving)
}

// wait returns why volumes wait for a device.
func (d *device) wait(now time.Time) error {
	switch {
	case d.Step != plan.None:
		return underWay(&d.Progress, d.err, now)
	case d.err != nil:
		return d.err
	default:
		return errors.New("it has not begun")
	}
}

// underWay returns that a step is under way, or why it has failed before.
func underWay(p *plan.Progress, err error, now time.Time) error {
	if err != nil {
		return err
	}
	return fmt.Errorf("%s is under way for %v", p.Step, now.Sub(p.Since).Round(time.Second))
}

// unwanted reports whether no pod is to have a volume of the device.
func (v *Volumes) unwanted(d *device) bool {
	for _, vol := range v.state.Volumes {
		if vol.Device == &d.Device && vol.Desired == plan.Mounted {
			return false
		}
	}
	return true
}

// sharedWith reports whether another pod has, or may have, a volume of the same device set up.
func (v *Volumes) sharedWith(p *podState, d *device) bool {
	for _, vol := range v.state.Volumes {
		if vol.Device == &d.Device && vol.Pod != p.uid && vol.Phase != plan.Absent {
			return true
		}
	}
	return false
}

// deviceVolume returns a device as plugins see it when they unstage it.
func (v *Volumes) deviceVolume(d *device) Volume {
	vol := Volume{
		Spec: d.on, Plugin: d.kind, PluginDir: v.opts.PluginDir, Block: d.block, Device: d.spec, DevicePath: d.path, Recovered: d.Recovered,
		Warn: func(string, string) {},
	}
	vol.StagingDir = v.stagingDir(&d.spec)
	return vol
}

// stagingDir returns where a device is staged, or "".
func (v *Volumes) stagingDir(d *Device) string {
	if d.Dir == "" {
		return ""
	}
	return filepath.Join(v.opts.PluginDir, d.Dir)
}

// InUse returns the names of the volumes that have to be attached to the node while they are wanted, or may be set up: as the
// kubelet reports them in the status of the Node, sorted.
func (v *Volumes) InUse() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	var names []string
	for name, d := range v.devices {
		if d.spec.Attachable && (d.Phase != plan.Absent || !v.unwanted(d)) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
