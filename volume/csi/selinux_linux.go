// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"errors"

	"golang.org/x/sys/unix"
)

// hasSELinuxLabels reports whether the container runtime can label files in the directory: SELinux is enabled, and the file
// system has labels.
func hasSELinuxLabels(dir string) bool {
	var st unix.Stat_t
	if unix.Lstat("/sys/fs/selinux/enforce", &st) != nil {
		return false
	}
	_, err := unix.Lgetxattr(dir, "security.selinux", nil)
	return err == nil || errors.Is(err, unix.ENODATA)
}
