// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package gc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// volumeDirDepths returns the depth of the mount points in each directory of a pod that contains volumes.
func volumeDirDepths() map[string]int {
	return map[string]int{"volumes": 2, "volume-subpaths": 3} // volumes/PLUGIN/NAME, volume-subpaths/VOLUME/CONTAINER/INDEX
}

// removePodDirs removes the directories of removed pods without mounted volumes. Source: cleanupOrphanedPodDirs in
// pkg/kubelet/kubelet_volumes.go.
func (g *Containers) removePodDirs(ctx context.Context, s *ContainerState) error {
	if s.NotReady {
		return nil
	}
	return g.removeDirs(ctx, s, g.opts.PodRoot, func(name string) string { return name }, g.releasePod)
}

// releasePod prepares the removal of a pod directory: it calls Options.Release and removes empty volume directories. A
// mounted or non-empty volume is an error.
func (g *Containers) releasePod(ctx context.Context, root *os.Root, uid string) error {
	if g.opts.Release != nil {
		_, err := callWithTimeout(ctx, callTimeout, func(ctx context.Context) (struct{}, error) { return struct{}{}, g.opts.Release(ctx, uid) })
		if err != nil {
			return fmt.Errorf("release the resources of the pod: %w", err)
		}
	}
	var errs []error
	for name, depth := range volumeDirDepths() {
		errs = append(errs, removeEmptyTree(root, filepath.Join(uid, name), depth))
	}
	return errors.Join(errs...)
}

// errVolumeRemains is the error for a pod directory that stays because of a volume.
var errVolumeRemains = errors.New("the volume is not empty, or it is still mounted")

// removeEmptyTree removes empty directories down to the given depth. A file, a mount point or a deeper entry is an error.
func removeEmptyTree(root *os.Root, dir string, depth int) error {
	var errs []error
	if depth > 0 {
		var names []string
		err := visitEntries(root, dir, func(e fs.DirEntry) { names = append(names, e.Name()) })
		errs = append(errs, ignoreNotExist(err))
		for _, name := range names {
			errs = append(errs, removeEmptyTree(root, filepath.Join(dir, name), depth-1))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := ignoreNotExist(removeEmptyDir(root, dir)); err != nil {
		return fmt.Errorf("%s: %w: %w", dir, errVolumeRemains, err)
	}
	return nil
}

// removeEmptyDir removes the directory dir. It returns an error if dir is no directory or is not empty.
func removeEmptyDir(root *os.Root, dir string) error {
	info, err := root.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return &fs.PathError{Op: "remove", Path: dir, Err: errors.New("it is no directory")}
	}
	return root.Remove(dir)
}
