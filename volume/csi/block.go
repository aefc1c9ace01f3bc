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

// persistentMode is the lifecycle mode of volumes with a claim.
const persistentMode = storagev1.VolumeLifecyclePersistent

// isMounted reports whether there is a mount point at path. If nothing exists there, it returns false without an error.
func isMounted(path string) (bool, error) {
	mounted, err := mount.IsMountPoint(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return mounted, err
}

// removeBlockVolume removes the directories of an unused block volume, or returns true if it is still mounted.
func removeBlockVolume(vol *volume.Volume) (stillMounted bool, err error) {
	if stillMounted, err = isMounted(vol.StagingDir); stillMounted || err != nil {
		return stillMounted, err
	}
	paths := blockPathsOf(vol.SpecName)
	at := func(path string) string { return filepath.Join(vol.PluginDir, path) }
	if err := removePath(at(paths.publish)); err != nil {
		return false, err
	}
	for _, dir := range []string{at(paths.staging), at(paths.home)} {
		if err := rmtree.Remove(dir); err != nil {
			return false, err
		}
	}
	return false, nil
}
