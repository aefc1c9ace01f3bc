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

// volumesDirs are the parts of the directory of a pod that have data of others: volumes/PLUGIN/NAME, and
// volume-subpaths/VOLUME/CONTAINER/INDEX. They are removed one by one where they are empty, and never with what is in them.
func volumesDirs() map[string]int { return map[string]int{"volumes": 2, "volume-subpaths": 3} }

// removePodDirs removes the directories of pods that were removed. One that still has volumes stays. Source:
// cleanupOrphanedPodDirs in pkg/kubelet/kubelet_volumes.go.
func (g *Containers) removePodDirs(ctx context.Context, s *ContainerState) error {
	if s.NotReady {
		return nil
	}
	return g.removeDirs(ctx, s, g.opts.PodRoot, func(name string) string { return name }, g.releasePod)
}

// releasePod gives back what a pod has, and makes sure that there is nothing left of it in its directory but files of the agent.
func (g *Containers) releasePod(ctx context.Context, root *os.Root, uid string) error {
	if g.opts.Release != nil {
		_, err := within(ctx, callTimeout, func(ctx context.Context) (struct{}, error) { return struct{}{}, g.opts.Release(ctx, uid) })
		if err != nil {
			return fmt.Errorf("give back what the pod has: %w", err)
		}
	}
	var errs []error
	for name, depth := range volumesDirs() {
		errs = append(errs, removeEmpty(root, filepath.Join(uid, name), depth))
	}
	return errors.Join(errs...)
}

// errVolumeLeft is why the directory of a pod stays.
var errVolumeLeft = errors.New("the volume is not empty, or it is still mounted")

// removeEmpty removes a directory that has only empty directories in it, so many levels deep. What is mounted there, and what has
// anything in it, stays and is an error.
func removeEmpty(root *os.Root, dir string, depth int) error {
	var errs []error
	if depth > 0 {
		var names []string
		err := eachEntry(root, dir, func(e fs.DirEntry) { names = append(names, e.Name()) })
		errs = append(errs, unlessMissing(err))
		for _, name := range names {
			errs = append(errs, removeEmpty(root, filepath.Join(dir, name), depth-1))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := unlessMissing(removeDirectory(root, dir)); err != nil {
		return fmt.Errorf("%s: %w: %w", dir, errVolumeLeft, err)
	}
	return nil
}

// removeDirectory removes an empty directory, and nothing else.
func removeDirectory(root *os.Root, dir string) error {
	info, err := root.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return &fs.PathError{Op: "remove", Path: dir, Err: errors.New("it is no directory")}
	}
	return root.Remove(dir)
}
