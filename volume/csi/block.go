// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"errors"
	"io/fs"
	"path/filepath"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/seed81659283/nodeagent/internal/mount"
	"github.com/seed81659283/nodeagent/internal/rmtree"
	"github.com/seed81659283/nodeagent/volume"
)

// persistentMode is that of volumes with a claim.
const persistentMode = storagev1.VolumeLifecyclePersistent

// isLeft reports whether something is mounted at a path.
func isLeft(at string) (bool, error) {
	mounted, err := mount.IsMountPoint(at)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return mounted, err
}

// removeBlock removes what was made for a block volume on this node. No pod has it any more. What the driver has left in its staging
// directory goes with that, but never what is mounted there.
func removeBlock(v *volume.Volume) (left bool, err error) {
	if left, err = isLeft(v.StagingDir); left || err != nil {
		return left, err
	}
	paths := blockPathsOf(v.Spec)
	at := func(path string) string { return filepath.Join(v.PluginDir, path) }
	if err := remove(at(paths.publish)); err != nil {
		return false, err
	}
	for _, dir := range []string{at(paths.staging), at(paths.home)} {
		if err := rmtree.Remove(dir); err != nil {
			return false, err
		}
	}
	return false, nil
}
