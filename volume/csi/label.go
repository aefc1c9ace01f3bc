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
func (p *Plugin) MountsWithLabel(ctx context.Context, v volume.Volume) (bool, error) {
	s, err := specOf(&v)
	if err != nil {
		return false, err
	}
	o, err := p.readPolicy(ctx, s.driver)
	return o.seLinuxMount, err
}

// mountOptions returns the mount options of a volume, including its SELinux label; nil for a block volume.
func mountOptions(s *volumeSpec, v *volume.Volume) []string {
	switch {
	case s.block:
		return nil
	case v.SELinuxLabel == "":
		return s.mountOptions
	}
	return append(slices.Clip(s.mountOptions), selinux.MountOption(v.SELinuxLabel))
}

// addLabel adds the SELinux label of a volume, if any, to data, the contents of vol_data.json. It changes data.
func addLabel(data map[string]string, v *volume.Volume) map[string]string {
	if v.SELinuxLabel != "" {
		data[keyLabel] = v.SELinuxLabel
	}
	return data
}
