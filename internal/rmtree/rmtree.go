// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package rmtree removes a directory tree, except mounts in it. Unlike os.RemoveAll, it cannot delete the data of a volume that
// is still mounted below a pod directory.
package rmtree

import (
	"fmt"
	"os"
)

// MountError means that a mount in the tree was kept. All other files and directories were removed, except the parents of mounts.
type MountError struct {
	Path string // the first mount point
}

// Error returns a text with the path of the mount point.
func (e *MountError) Error() string {
	return fmt.Sprintf("remove %s: something is mounted there", e.Path)
}

// Remove removes the file or directory tree at path, if any, without following symbolic links. It keeps mounts and the
// directories above them; the error is then a [*MountError]. It detects mounts only on Linux.
func Remove(path string) error {
	info, err := os.Lstat(path)
	switch {
	case os.IsNotExist(err):
		return nil
	case err != nil:
		return err
	case !info.IsDir():
		return os.Remove(path)
	}
	return removeTree(path)
}
