// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/volume/plan"
	"github.com/seed81659283/nodeagent/internal/volume/record"
	"github.com/seed81659283/nodeagent/internal/volume/selinux"
)

// deviceTable is the table of devices that volumes of several pods share. The lock of Volumes guards it.
type deviceTable struct {
	plan     *plan.State        // of all volumes and devices
	byName   map[string]*device // by deviceName
	reserved []reservation      // of pods whose records are about to be written
}

// device is what volumes of several pods share.
type device struct {
	plan    plan.Device
	spec    record.Device
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

// addUser registers p as a user of the device of r, and returns the device, which it creates on first use.
func (t *deviceTable) addUser(p *podState, r record.Volume) *device {
	name := deviceName(r.Plugin, r.Device.Name)
	d := t.byName[name]
	if d == nil {
		d = &device{plan: plan.Device{Name: name}, kind: r.Plugin, holders: map[*podState]bool{}}
		t.byName[name] = d
		t.plan.Devices = append(t.plan.Devices, &d.plan)
	}
	d.spec, d.on, d.block, d.label = *r.Device, r.Spec(), r.Block, r.SELinuxLabel
	d.holders[p] = true
	return d
}

// removeUser removes p from the users of a device. A device without users is removed from the table, as nothing is left of it.
func (t *deviceTable) removeUser(p *podState, d *device) {
	delete(d.holders, p)
	if len(d.holders) > 0 {
		return
	}
	delete(t.byName, d.plan.Name)
	t.plan.Devices = slices.DeleteFunc(t.plan.Devices, func(other *plan.Device) bool { return other == &d.plan })
}

// isLastUser reports whether the record of a pod is the only one that has a device of which something may be left.
func (d *device) isLastUser(p *podState) bool {
	return len(d.holders) == 1 && d.holders[p] && (d.plan.Phase != plan.Absent || d.plan.Step != plan.None || d.plan.StuckMaking || d.plan.StuckRemoving)
}

// isUnwanted reports whether no pod is to have a volume of the device.
func (t *deviceTable) isUnwanted(d *device) bool {
	for _, vol := range t.plan.Volumes {
		if vol.Device == &d.plan && vol.Desired == plan.Mounted {
			return false
		}
	}
	return true
}

// isShared reports whether another pod than that of a UID has, or may have, a volume of the same device set up.
func (t *deviceTable) isShared(uid string, d *device) bool {
	for _, vol := range t.plan.Volumes {
		if vol.Device == &d.plan && vol.Pod != uid && vol.Phase != plan.Absent {
			return true
		}
	}
	return false
}

// retryUsers ends the back-off of the volumes that wait for a device which is for one pod at a time.
func (t *deviceTable) retryUsers(d *device) {
	for _, vol := range t.plan.Volumes {
		if vol.Device == &d.plan && vol.Failed == plan.SetUp {
			vol.Retry()
		}
	}
}

// reservation is a volume that shares a device, and is about to be in the record of a pod.
type reservation struct {
	pod    *podState
	volume record.Volume
}

// reserve notes that a pod is about to have a record of a volume. A volume that has the device of another one must have it at the same
// place and in the same way, for what is made of it is undone by either.
func (t *deviceTable) reserve(p *podState, r record.Volume) error {
	if r.Device == nil {
		return nil
	}
	if d := t.byName[deviceName(r.Plugin, r.Device.Name)]; d != nil {
		if err := conflict(&r, record.Volume{Dir: d.on, Device: &d.spec, Block: d.block, SELinuxLabel: d.label}); err != nil {
			return err
		}
	}
	for _, other := range t.reserved {
		if o := other.volume; o.Plugin == r.Plugin && o.Device.Name == r.Device.Name {
			if err := conflict(&r, o); err != nil {
				return err
			}
		}
	}
	t.reserved = append(t.reserved, reservation{p, r})
	return nil
}

// unreserve forgets the reservations of a pod, whose record has been written or will not be.
func (t *deviceTable) unreserve(p *podState) {
	t.reserved = slices.DeleteFunc(t.reserved, func(r reservation) bool { return r.pod == p })
}

// conflict returns an error for a volume whose device is known by another one, in another way.
func conflict(v *record.Volume, known record.Volume) error {
	d := known.Device
	if v.Device.Dir == d.Dir && v.Device.MapDir == d.MapDir && v.Block == known.Block {
		return selinux.Conflict(v.Spec(), known.SELinuxLabel, v.SELinuxLabel)
	}
	return fmt.Errorf("volume %s (%s) is of the same device as volume %s (%s), which is in use: %.256q",
		v.Spec(), place(v.Device, v.Block), known.Spec(), place(d, known.Block), d.Name)
}

// place says in which way a device is had, and where.
func place(d *record.Device, block bool) string {
	mode, dir := corev1.PersistentVolumeFilesystem, d.Dir
	if block {
		mode = corev1.PersistentVolumeBlock
	}
	if dir == "" {
		dir = d.MapDir
	}
	return fmt.Sprintf("%s at %s", mode, dir)
}
