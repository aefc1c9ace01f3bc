// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build amd64 || arm64

package projquota_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/internal/mounttest"
	"github.com/seed81659283/nodeagent/internal/projquota"
)

func TestMain(m *testing.M) { mounttest.Main(m) }

// TestIntegrationQuota needs a kernel with project quotas, such as the kernels of hack/vm. On other kernels it checks the
// errors.
func TestIntegrationQuota(t *testing.T) {
	root, has := mounttest.QuotaFS(t)
	var p projquota.Projects
	dir := filepath.Join(root, "v")
	require.NoError(t, os.Mkdir(dir, 0o777))
	require.NoError(t, os.Chmod(dir, 0o777))
	if !has {
		require.ErrorIs(t, p.Limit(dir, 1<<20), errors.ErrUnsupported)
		_, err := projquota.UsageOf(dir)
		require.ErrorIs(t, err, errors.ErrUnsupported)
		assert.Zero(t, projquota.ProjectOf(dir))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "large"), make([]byte, 2<<20), 0o600))
		require.Empty(t, os.Getenv("IN_TEST_VM"), "the kernels of hack/vm have quotas")
		return
	}
	require.NoError(t, p.Limit(dir, 1<<20))
	id := projquota.ProjectOf(dir)
	require.GreaterOrEqual(t, id, uint32(projquota.FirstID))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "a/b"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a/b/file"), make([]byte, 512<<10), 0o600))
	u, err := projquota.UsageOf(dir)
	require.NoError(t, err)
	assert.EqualValues(t, 1<<20, u.Limit)
	assert.InDelta(t, 512<<10, u.Bytes, 32<<10)
	assert.EqualValues(t, 4, u.Inodes)

	require.ErrorIs(t, mounttest.WriteLimited(t, filepath.Join(dir, "large"), 1<<20), unix.EDQUOT)
	require.NoError(t, os.Remove(filepath.Join(dir, "large")))
	require.NoError(t, p.Limit(dir, 4<<20), "the limit of a project can be raised")
	require.NoError(t, mounttest.WriteLimited(t, filepath.Join(dir, "large"), 1<<20))
	assert.Equal(t, id, projquota.ProjectOf(dir))
	assert.Zero(t, projquota.ProjectOf(filepath.Join(dir, "a")), "ProjectOf ignores a project that is inherited from the parent directory")

	other := filepath.Join(root, "w")
	require.NoError(t, os.Mkdir(other, 0o777))
	same := projquota.Projects{Rand: func() uint32 { return id }}
	require.NoError(t, same.Limit(other, 1<<20))
	assert.NotEqual(t, id, projquota.ProjectOf(other), "a project ID that is in use is not assigned again")

	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, projquota.Release(root, id))
	require.NoError(t, os.Mkdir(dir, 0o777))
	require.NoError(t, same.Limit(dir, 1<<20))
	assert.Equal(t, id, projquota.ProjectOf(dir), "a released project ID is assigned again")

	full := filepath.Join(root, "full")
	require.NoError(t, os.Mkdir(full, 0o777))
	require.NoError(t, os.WriteFile(filepath.Join(full, "file"), nil, 0o600))
	require.ErrorIs(t, p.Limit(full, 1<<20), errors.ErrUnsupported, "a directory with files is refused, because their usage would not count")
	link := filepath.Join(root, "link")
	require.NoError(t, os.Symlink(dir, link))
	require.Error(t, p.Limit(link, 1<<20), "a link is not followed")
}

// Project IDs that this package does not assign are never released.
func TestReleaseIgnoresForeignProjects(t *testing.T) {
	for _, id := range []uint32{0, 1, projquota.FirstID - 1, 1 << 31} {
		require.NoError(t, projquota.Release("/nowhere", id))
	}
}
