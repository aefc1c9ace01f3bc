// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package gc

import (
	"errors"
	"os"
)

// statDisk is supported on Linux only.
func statDisk(path string) (Disk, error) {
	return Disk{}, &os.PathError{Op: "statfs", Path: path, Err: errors.ErrUnsupported}
}
