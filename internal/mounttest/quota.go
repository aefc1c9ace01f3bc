// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package mounttest

import "testing"

// QuotaFS mounts a new ext4 file system of 64 MiB and returns its root. enforced is true if the kernel enforces project
// quotas, as that of hack/vm does. Without a loop device or mkfs.ext4, the test is skipped.
func QuotaFS(t testing.TB) (root string, enforced bool) {
	t.Helper()
	Need(t)
	return mountQuotaFS(t)
}

// WriteLimited creates the file at path with about this number of bytes. It writes without CAP_SYS_RESOURCE, so that quotas
// apply even to root. If a quota prevents the write, the error is EDQUOT or ENOSPC.
func WriteLimited(t testing.TB, path string, bytes int) error {
	t.Helper()
	return writeLimited(t, path, bytes)
}
