// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"slices"

	"github.com/seed81659283/nodeagent/internal/volume/selinux"
	"github.com/seed81659283/nodeagent/volume"
)

// MountsWithLabel reports whether the driver of a volume mounts it with an SELinux label, as the seLinuxMount of its CSIDriver object says.
func (p *Plugin) MountsWithLabel(ctx context.Context, v volume.Volume) (bool, error) {
	s, err := specOf(&v)
	if err != nil {
		return false, err
	}
	o, err := p.object(ctx, s.driver)
	return o.labels, err
}

// mountOptions returns the options that a driver mounts a volume with. A block volume has none.
func mountOptions(s *volumeSpec, v *volume.Volume) []string {
	switch {
	case s.block:
		return nil
	case v.SELinuxLabel == "":
		return s.mountOptions
	}
	return append(slices.Clip(s.mountOptions), selinux.MountOption(v.SELinuxLabel))
}

// labeled adds the SELinux label that a volume is mounted with to its data, if it has one. It changes data.
func labeled(data map[string]string, v *volume.Volume) map[string]string {
	if v.SELinuxLabel != "" {
		data[keyLabel] = v.SELinuxLabel
	}
	return data
}
