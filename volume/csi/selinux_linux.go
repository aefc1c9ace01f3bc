// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"errors"

	"golang.org/x/sys/unix"
)

// hasSELinuxLabels reports whether SELinux is enabled on the node and the file system of the directory stores labels. If so,
// the container runtime can relabel the files.
func hasSELinuxLabels(dir string) bool {
	var st unix.Stat_t
	if unix.Lstat("/sys/fs/selinux/enforce", &st) != nil {
		return false
	}
	_, err := unix.Lgetxattr(dir, "security.selinux", nil)
	return err == nil || errors.Is(err, unix.ENODATA)
}
