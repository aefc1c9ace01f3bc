// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package mounttest

import "testing"

// QuotaFS mounts an ext4 file system of 64 MiB for the test and returns its root directory. enforced reports whether the kernel
// enforces project quotas; the kernel of hack/vm does. If the host has no loop device or no mkfs.ext4, the test is skipped.
func QuotaFS(t testing.TB) (root string, enforced bool) {
	t.Helper()
	Need(t)
	return mountQuotaFS(t)
}

// WriteLimited creates the file at path with about the given number of bytes. It writes without CAP_SYS_RESOURCE, so that quotas
// apply even to root. The error is EDQUOT or ENOSPC if a quota prevents the write.
func WriteLimited(t testing.TB, path string, bytes int) error {
	t.Helper()
	return writeLimited(t, path, bytes)
}
