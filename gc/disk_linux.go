// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package gc

import (
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// statDisk returns the size and the free space of the file system at path. If the file system does not respond, the call
// hangs.
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
	return Disk{Capacity: multiplySaturated(st.Blocks, block), Available: multiplySaturated(st.Bavail, block)}, nil
}

// multiplySaturated returns a*b, at most the largest uint64.
func multiplySaturated(a, b uint64) uint64 {
	if b != 0 && a > math.MaxUint64/b {
		return math.MaxUint64
	}
	return a * b
}
