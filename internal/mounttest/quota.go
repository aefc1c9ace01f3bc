// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package mounttest

import "testing"

// QuotaFS mounts an ext4 file system of 64 MiB for a test and returns its root. enforced reports whether the kernel enforces
// project quotas, as those of hack/vm do. Without a loop device or mkfs.ext4 it skips the test.
func QuotaFS(t testing.TB) (root string, enforced bool) {
	t.Helper()
	Need(t)
	return mountQuotaFS(t)
}

// WriteLimited creates a file of the given size, without the capability to exceed quotas.
func WriteLimited(t testing.TB, path string, bytes int) error {
	t.Helper()
	return writeLimited(t, path, bytes)
}
