// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"path/filepath"

	"github.com/seed81659283/nodeagent/internal/volume/record"
	"github.com/seed81659283/nodeagent/volume/subpath"
)

// tearDownVolume unmounts the subPaths of the volume, or the bind mount of a block device. It then calls TearDown of the
// plugin.
func (pc *pluginCall) tearDownVolume(ctx context.Context, plugin Plugin) error {
	if pc.volume.Block {
		if err := blockMapping(pc.volume).Unmap(ctx); err != nil {
			return err
		}
		return plugin.TearDown(ctx, pc.volume)
	}
	if err := cleanSubPaths(ctx, pc.volume); err != nil {
		return err
	}
	return plugin.TearDown(ctx, pc.volume)
}

// cleanSubPaths unmounts the subPaths that containers of the pod use, and removes their mount points.
func cleanSubPaths(ctx context.Context, vol Volume) error {
	return subpath.Clean(ctx, filepath.Join(vol.PodDir, record.SubPathDir, vol.SpecName))
}
