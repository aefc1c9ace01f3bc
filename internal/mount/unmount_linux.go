// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package mount

import (
	"errors"

	"golang.org/x/sys/unix"
)

// unmountFlags returns the ways of unmounting, in the order in which they are tried.
func unmountFlags(noForce bool) []int {
	flags := []int{unix.UMOUNT_NOFOLLOW, unix.UMOUNT_NOFOLLOW | unix.MNT_FORCE, unix.UMOUNT_NOFOLLOW | unix.MNT_DETACH}
	if noForce {
		return []int{flags[0], flags[2]}
	}
	return flags
}

func unmount(target string, flags int) error {
	for {
		if err := unix.Unmount(target, flags); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// busy reports whether somebody uses a mount, or has mounted something in it.
func busy(err error) bool { return errors.Is(err, unix.EBUSY) }

// absent reports whether there is no such path.
func absent(err error) bool { return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) }
