// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// statfs calls statfs(2) and stat(2) on path.
func statfs(path string) (Filesystem, error) {
	var s unix.Statfs_t
	err := unix.Statfs(path, &s)
	for errors.Is(err, unix.EINTR) {
		err = unix.Statfs(path, &s)
	}
	if err != nil {
		return Filesystem{}, &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	unit := uint64(s.Frsize)
	if unit == 0 {
		unit = uint64(s.Bsize)
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return Filesystem{}, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return Filesystem{
		Device:        uint64(st.Dev), //nolint:unconvert // it is not of the same type on every architecture
		CapacityBytes: mulSaturated(s.Blocks, unit), AvailableBytes: mulSaturated(s.Bavail, unit), FreeBytes: mulSaturated(s.Bfree, unit),
		Inodes: s.Files, InodesFree: s.Ffree,
	}, nil
}
