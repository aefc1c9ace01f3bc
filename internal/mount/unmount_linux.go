// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package mount

import (
	"errors"

	"golang.org/x/sys/unix"
)

// unmountFlags returns the flags for the attempts to unmount: plain, forced unless noForce, lazy.
func unmountFlags(noForce bool) []int {
	flags := []int{unix.UMOUNT_NOFOLLOW, unix.UMOUNT_NOFOLLOW | unix.MNT_FORCE, unix.UMOUNT_NOFOLLOW | unix.MNT_DETACH}
	if noForce {
		return []int{flags[0], flags[2]}
	}
	return flags
}

func unmountOnce(target string, flags int) error {
	for {
		if err := unix.Unmount(target, flags); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// isBusy reports whether err is EBUSY: a process uses the mount, or another mount is below it.
func isBusy(err error) bool { return errors.Is(err, unix.EBUSY) }

// isAbsent reports whether err means that a path does not exist.
func isAbsent(err error) bool { return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) }
