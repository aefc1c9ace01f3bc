// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package rmtree removes a directory with all that is in it, and never what is mounted there. A volume that is still mounted
// below the directory of a pod holds somebody's data: os.RemoveAll would delete that.
package rmtree

import (
	"fmt"
	"os"
)

// MountError is why a tree was not removed: something is mounted in it. All else in the tree is removed.
type MountError struct {
	Path string // where the first of the mounts is
}

// Error names the mount.
func (e *MountError) Error() string {
	return fmt.Sprintf("remove %s: something is mounted there", e.Path)
}

// Remove removes what is at a path, with all that is below it, and follows no links. An absent path is success. What is
// mounted at the path or below it is left alone, with the directories that lead there, and is a [*MountError].
//
// On systems other than Linux mounts are not seen.
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
