// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/seed81659283/nodeagent/volume"
)

var _ volume.DeviceFinder = (*Plugin)(nil)

// FindDevice returns the device of a volume that another program, such as a kubelet, has set up. It reads the driver and the volume handle from the
// file vol_data.json. In a cluster, the device counts as attachable, because only the CSIDriver object has this information. Without the file, the
// volume must not be mounted. Source: ConstructVolumeSpec in pkg/volume/csi/csi_plugin.go, and csi_block.go.
func (p *Plugin) FindDevice(vol volume.Volume) (volume.Device, error) {
	if vol.Block {
		return p.findBlockDevice(vol)
	}
	data, err := loadVolumeData(vol.Dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if mounted, mountErr := isMounted(publishPath(&vol)); mounted || mountErr != nil {
			return volume.Device{}, fmt.Errorf("driver of volume %q is unknown: %w", vol.SpecName, errors.Join(err, mountErr))
		}
		return volume.Device{}, nil // TearDown removes the directory
	case err != nil:
		return volume.Device{}, err
	case data.mode == storagev1.VolumeLifecycleEphemeral:
		return volume.Device{}, nil // an inline volume belongs to one pod
	}
	d := p.foundDevice(data.owner)
	d.Dir = stagingDir(data.driver, data.handle)
	return d, nil
}

// findBlockDevice returns the device of a block volume.
func (p *Plugin) findBlockDevice(vol volume.Volume) (volume.Device, error) {
	if err := checkBlockName(vol.SpecName); err != nil {
		return volume.Device{}, err
	}
	paths := blockPathsOf(vol.SpecName)
	data, err := loadVolumeData(filepath.Join(vol.PluginDir, paths.data))
	if err != nil {
		return volume.Device{}, err
	}
	d := p.foundDevice(data.owner)
	d.Dir, d.MapDir = paths.staging, paths.dev
	return d, nil
}

// foundDevice returns a device without directories.
func (p *Plugin) foundDevice(o owner) volume.Device {
	return volume.Device{Name: o.driver + "^" + o.handle, Data: map[string]string{keyDriver: o.driver, keyHandle: o.handle}, Attachable: p.opts.Attachments != nil}
}
