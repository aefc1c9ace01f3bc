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

// maxDepth is how deep targets are below the directory that is cleaned: volume, container and index.
const maxDepth = 3

func clean(ctx context.Context, path string) error {
	// Force would be felt by everybody who uses the same network file system.
	c := &cleaner{unmounter: mount.Unmounter{NoForce: true}}
	return c.clean(ctx, path, 0)
}

// cleaner is one call of Clean.
type cleaner struct{ unmounter mount.Unmounter }

// clean removes one path. It goes on after an error with what is beside it.
func (c *cleaner) clean(ctx context.Context, path string, depth int) error {
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
		return c.cleanDir(ctx, path, depth)
	case info.Size() > 0 || !info.Mode().IsRegular():
		return fmt.Errorf("remove %s: it is no empty file", path)
	}
	return removed(os.Remove(path))
}

// cleanDir removes a directory with what is in it, if that can be removed.
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
		errs = append(errs, c.clean(ctx, filepath.Join(path, e.Name()), depth+1))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return removed(os.Remove(path))
}

// removed makes success of a removal that somebody else has done.
func removed(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
