// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package gc

import (
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// statDisk returns what the file system at a path has. It hangs where the file system does.
func statDisk(path string) (Disk, error) {
	var st unix.Statfs_t
	for {
		err := unix.Statfs(path, &st)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return Disk{}, &os.PathError{Op: "statfs", Path: path, Err: err}
		}
		break
	}
	block := uint64(max(st.Frsize, 0))
	return Disk{Capacity: times(st.Blocks, block), Available: times(st.Bavail, block)}, nil
}

// times is a product that stops at the largest number.
func times(a, b uint64) uint64 {
	if b != 0 && a > math.MaxUint64/b {
		return math.MaxUint64
	}
	return a * b
}
