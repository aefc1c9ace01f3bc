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

// deviceTable has the devices that pods share, such as mounted PVs. Volumes.mu guards it.
type deviceTable struct {
	plan     *plan.State        // of all volumes and devices of the node
	byName   map[string]*device // by deviceName
	reserved []reservation      // devices of pods whose record is not written yet
}

// device is the state of one [Device] that pods share.
type device struct {
	plan     plan.Device
	spec     record.Device
	plugin   string             // name of the plugin
	specName string             // name of the volume on disk
	block    bool               // the volume is a block device
	label    string             // SELinux label with which it is mounted; empty: none
	users    map[*podState]bool // pods whose record has a volume on the device
	size     int64              // bytes on this node; zero: unknown
	path     string             // device path that the Attacher returned; empty: unknown
	err      error              // error of the last failed step; nil after a success

	cancel context.CancelFunc // cancels the running step; nil: no step is running
}

// deviceName returns PLUGIN/NAME, the unique name of a device on the node. It is the unique volume name of the kubelet.
func deviceName(plugin, name string) string { return plugin + "/" + name }

// addUser adds a pod to the users of the device of its recorded volume, and returns the device.
func (t *deviceTable) addUser(user *podState, recorded record.Volume) *device {
	name := deviceName(recorded.Plugin, recorded.Device.Name)
	d := t.byName[name]
	if d == nil {
		d = &device{plan: plan.Device{Name: name}, plugin: recorded.Plugin, users: map[*podState]bool{}}
		t.byName[name] = d
		t.plan.Devices = append(t.plan.Devices, &d.plan)
	}
	d.spec, d.specName, d.block, d.label = *recorded.Device, recorded.SpecName(), recorded.Block, recorded.SELinuxLabel
	d.users[user] = true
	return d
}

// removeUser removes a pod from the users of a device. The last user's device must be unstaged.
func (t *deviceTable) removeUser(user *podState, dev *device) {
	delete(dev.users, user)
	if len(dev.users) > 0 {
		return
	}
	delete(t.byName, dev.plan.Name)
	t.plan.Devices = slices.DeleteFunc(t.plan.Devices, func(other *plan.Device) bool { return other == &dev.plan })
}

// isLastUser reports whether a pod is the only user of a device that may still be staged: unstage it before the pod's record is
// removed.
func (d *device) isLastUser(user *podState) bool {
	return len(d.users) == 1 && d.users[user] && (d.plan.Phase != plan.Absent || d.plan.Step != plan.None || d.plan.HungSetUp || d.plan.HungTearDown)
}

// hasAdoptedUser reports whether the pod spec or the record of a pod describes the device. The SELinux label of an identified volume is unknown.
func (d *device) hasAdoptedUser() bool {
	for p := range d.users {
		if p.adoption == nil {
			return true
		}
	}
	return false
}

// isUnneeded reports whether no pod needs the device any more. A pod needs the device while one of its volumes on the device
// must be mounted.
func (t *deviceTable) isUnneeded(dev *device) bool {
	for _, vol := range t.plan.Volumes {
		if vol.Device == &dev.plan && vol.Desired == plan.Mounted {
			return false
		}
	}
	return true
}

// isShared reports whether a volume of another pod than the given one is set up on the device, or may be.
func (t *deviceTable) isShared(uid string, dev *device) bool {
	for _, vol := range t.plan.Volumes {
		if vol.Device == &dev.plan && vol.Pod != uid && vol.Phase != plan.Absent {
			return true
		}
	}
	return false
}

// retryUsers makes Run retry failed set-ups on the device after a teardown: a pod may wait for a ReadWriteOncePod volume.
func (t *deviceTable) retryUsers(dev *device) {
	for _, vol := range t.plan.Volumes {
		if vol.Device == &dev.plan && vol.Failed == plan.SetUp {
			vol.Retry()
		}
	}
}

// reservation says that a pod is about to write volume, which has a device, to its record.
type reservation struct {
	pod    *podState
	volume record.Volume
}

// reserveDevice reserves the device of a volume for a pod, before its record. It returns an error if another volume uses the
// device differently.
func (t *deviceTable) reserveDevice(user *podState, planned record.Volume) error {
	if planned.Device == nil {
		return nil
	}
	// The teardown of one volume would break the other.
	if d := t.byName[deviceName(planned.Plugin, planned.Device.Name)]; d != nil && d.hasAdoptedUser() {
		if err := checkConflict(&planned, record.Volume{Dir: d.specName, Device: &d.spec, Block: d.block, SELinuxLabel: d.label}); err != nil {
			return err
		}
	}
	for _, other := range t.reserved {
		if o := other.volume; o.Plugin == planned.Plugin && o.Device.Name == planned.Device.Name {
			if err := checkConflict(&planned, o); err != nil {
				return err
			}
		}
	}
	t.reserved = append(t.reserved, reservation{user, planned})
	return nil
}

// releaseReservations removes the device reservations of a pod, once its record is written or cannot be.
func (t *deviceTable) releaseReservations(user *podState) {
	t.reserved = slices.DeleteFunc(t.reserved, func(r reservation) bool { return r.pod == user })
}

// checkConflict returns an error if two volumes on a device differ in paths, mode or SELinux label and cannot share it.
func checkConflict(planned *record.Volume, existing record.Volume) error {
	d := existing.Device
	if planned.Device.Dir == d.Dir && planned.Device.MapDir == d.MapDir && planned.Block == existing.Block {
		return selinux.CheckConflict(planned.SpecName(), existing.SELinuxLabel, planned.SELinuxLabel)
	}
	return fmt.Errorf("volume %s (%s) is of the same device as volume %s (%s), which is in use: %.256q",
		planned.SpecName(), describeMode(planned.Device, planned.Block), existing.SpecName(), describeMode(d, existing.Block), d.Name)
}

// describeMode returns the volume mode and the directory of a device as "MODE at DIR" for an error.
func describeMode(dev *record.Device, block bool) string {
	mode, dir := corev1.PersistentVolumeFilesystem, dev.Dir
	if block {
		mode = corev1.PersistentVolumeBlock
	}
	if dir == "" {
		dir = dev.MapDir
	}
	return fmt.Sprintf("%s at %s", mode, dir)
}
