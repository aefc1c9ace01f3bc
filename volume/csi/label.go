// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"slices"

	"github.com/seed81659283/nodeagent/internal/volume/selinux"
	"github.com/seed81659283/nodeagent/volume"
)

// MountsWithLabel reports whether the driver of the volume can mount it with an SELinux label. It reads the field
// seLinuxMount of the CSIDriver object.
func (p *Plugin) MountsWithLabel(ctx context.Context, vol volume.Volume) (bool, error) {
	s, err := specOf(&vol)
	if err != nil {
		return false, err
	}
	o, err := p.readPolicy(ctx, s.driver)
	return o.seLinuxMount, err
}

// mountOptions returns the mount options in the volume's spec, with that for its SELinux label, or nil for a block volume.
func mountOptions(spec *volumeSpec, vol *volume.Volume) []string {
	switch {
	case spec.block:
		return nil
	case vol.SELinuxLabel == "":
		return spec.mountOptions
	}
	return append(slices.Clip(spec.mountOptions), selinux.MountOption(vol.SELinuxLabel))
}

// addLabel adds the SELinux label of the volume, if it has one, to the contents of vol_data.json. It changes the map data
// and returns it.
func addLabel(data map[string]string, vol *volume.Volume) map[string]string {
	if vol.SELinuxLabel != "" {
		data[keyLabel] = vol.SELinuxLabel
	}
	return data
}
