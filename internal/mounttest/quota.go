// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package mounttest

import "testing"

// QuotaFS mounts an ext4 of 64 MiB for the length of a test and returns its root, and whether it enforces project quotas, which takes
// a kernel with them: those of hack/vm. It skips the test where there is no loop device or no mkfs.ext4.
func QuotaFS(t testing.TB) (root string, enforced bool) {
	t.Helper()
	Need(t)
	return quotaFS(t)
}

// WriteLimited makes a file of so many bytes, without the capability with which a process may exceed quotas.
func WriteLimited(t testing.TB, path string, bytes int) error {
	t.Helper()
	return writeLimited(t, path, bytes)
}
