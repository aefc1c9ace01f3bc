// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package apiserver

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// ensurePrivate sets the mode of the directory to 0700. If another user owns the directory, it returns an error.
func ensurePrivate(dir string, info fs.FileInfo) error {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("its owner is user %d: must be %d", stat.Uid, os.Geteuid())
	}
	if info.Mode().Perm()&0o077 == 0 {
		return nil
	}
	return os.Chmod(dir, 0o700)
}
