// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cni_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// unmountAll removes the bind mount of a directory and the mounts in it.
func unmountAll(t testing.TB, dir string) {
	for unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) == nil {
	}
	if err := unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		require.NoError(t, err)
	}
}
