// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package subpath

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/seed81659283/nodeagent/internal/mount"
)

// maxDepth is the number of directory levels between the path passed to Clean and a target: volume, container and index.
const maxDepth = 3

func cleanTree(ctx context.Context, path string) error {
	// A forced unmount would break other users of the network file system.
	c := &cleaner{unmounter: mount.Unmounter{NoForce: true}}
	return c.cleanPath(ctx, path, 0)
}

// cleaner is the state of one call of Clean.
type cleaner struct{ unmounter mount.Unmounter }

// cleanPath unmounts and removes path and the entries below it that Prepare has created. depth is that of path below the
// argument of Clean.
func (c *cleaner) cleanPath(ctx context.Context, path string, depth int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := c.unmounter.Unmount(ctx, path); err != nil {
		return err
	}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.IsDir():
		return c.cleanDir(ctx, path, depth) // an error in one entry does not prevent the removal of other entries
	case info.Size() > 0 || !info.Mode().IsRegular():
		return fmt.Errorf("remove %s: it is no empty file", path)
	}
	return ignoreNotExist(os.Remove(path))
}

// cleanDir removes the directory at path and the entries in it that Prepare has created. depth is the depth of path below
// the argument of Clean.
func (c *cleaner) cleanDir(ctx context.Context, path string, depth int) error {
	err := os.Remove(path)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if depth >= maxDepth {
		return err
	}
	entries, readErr := os.ReadDir(path)
	if readErr != nil {
		return readErr
	}
	var errs []error
	for _, e := range entries {
		errs = append(errs, c.cleanPath(ctx, filepath.Join(path, e.Name()), depth+1))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return ignoreNotExist(os.Remove(path))
}

// ignoreNotExist returns nil if err wraps fs.ErrNotExist, and err otherwise.
func ignoreNotExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
