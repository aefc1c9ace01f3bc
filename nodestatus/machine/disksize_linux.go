// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"syscall"
)

// diskSize returns the size in bytes of the file system that contains path.
func diskSize(path string) (int64, error) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(path, &fs); err != nil {
		return 0, fmt.Errorf("size of the file system of %s: %w", path, err)
	}
	return int64(fs.Blocks) * fs.Frsize, nil
}
