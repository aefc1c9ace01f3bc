// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"slices"

	"github.com/seed81659283/nodeagent/internal/volume/selinux"
	"github.com/seed81659283/nodeagent/volume"
)

// MountsWithLabel reports whether the driver of a volume mounts it with an SELinux label: seLinuxMount of its CSIDriver object.
func (p *Plugin) MountsWithLabel(ctx context.Context, vol volume.Volume) (bool, error) {
	s, err := specOf(&vol)
	if err != nil {
		return false, err
	}
	o, err := p.readPolicy(ctx, s.driver)
	return o.seLinuxMount, err
}

// mountOptions returns the mount options of a volume, including its SELinux label; nil for a block volume.
func mountOptions(spec *volumeSpec, vol *volume.Volume) []string {
	switch {
	case spec.block:
		return nil
	case vol.SELinuxLabel == "":
		return spec.mountOptions
	}
	return append(slices.Clip(spec.mountOptions), selinux.MountOption(vol.SELinuxLabel))
}

// addLabel adds the SELinux label of a volume, if any, to data, the contents of vol_data.json. It changes data.
func addLabel(data map[string]string, vol *volume.Volume) map[string]string {
	if vol.SELinuxLabel != "" {
		data[keyLabel] = vol.SELinuxLabel
	}
	return data
}
