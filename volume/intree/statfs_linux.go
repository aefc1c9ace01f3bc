// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package intree

import (
	"context"
	"os"

	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/volume"
)

// statFilesystem returns the usage of the file system that contains the directory. It returns when ctx ends, even if the
// file system hangs.
func (n *node) statFilesystem(ctx context.Context, dir string) (volume.Usage, error) {
	found := make(chan volume.Usage, 1)
	err := n.calls.Do(ctx, "statfs "+dir, func() error {
		var fs unix.Statfs_t
		if err := unix.Statfs(dir, &fs); err != nil {
			return &os.PathError{Op: "statfs", Path: dir, Err: err}
		}
		size := uint64(fs.Bsize)
		found <- volume.Usage{
			CapacityBytes: fs.Blocks * size, AvailableBytes: fs.Bavail * size, UsedBytes: (fs.Blocks - fs.Bfree) * size,
			Inodes: fs.Files, FreeInodes: fs.Ffree, UsedInodes: fs.Files - fs.Ffree,
		}
		return nil
	})
	if err != nil {
		return volume.Usage{}, err
	}
	return <-found, nil
}

// fileGroup returns the group of a file.
func fileGroup(path string) (int64, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return int64(st.Gid), nil
}
