// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package blockdev_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/blockdev"
	"github.com/seed81659283/nodeagent/internal/mount"
	"github.com/seed81659283/nodeagent/internal/mounttest"
)

func TestMain(m *testing.M) { mounttest.Main(m) }

// A held device has exactly one loop device, and none after its release.
func TestHoldAttachesOneLoopDevice(t *testing.T) {
	device := mounttest.LoopDevice(t, 1<<20)
	bound := filepath.Join(t.TempDir(), "bound")
	require.NoError(t, os.WriteFile(bound, nil, 0o600))
	require.NoError(t, mount.Bind(device, bound, mount.BindOptions{}))
	t.Cleanup(func() { assert.NoError(t, new(mount.Unmounter).Unmount(context.WithoutCancel(t.Context()), bound)) })
	same, err := blockdev.Same(device, bound)
	require.NoError(t, err)
	require.True(t, same)

	holders := func() (n int) {
		files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
		require.NoError(t, err)
		for _, f := range files {
			data, _ := os.ReadFile(f)
			if strings.TrimSpace(string(data)) == bound {
				n++
			}
		}
		return n
	}
	for range 2 {
		require.NoError(t, blockdev.Hold(t.Context(), bound))
		assert.Equal(t, 1, holders())
	}
	for range 2 {
		require.NoError(t, blockdev.Release(t.Context(), bound))
		assert.Zero(t, holders())
	}
	require.NoError(t, blockdev.Release(t.Context(), bound+".absent"))
}

func TestResolve(t *testing.T) {
	device := mounttest.LoopDevice(t, 1<<20)
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(device, link))
	got, err := blockdev.Resolve(link)
	require.NoError(t, err)
	assert.Equal(t, device, got)
	size, err := blockdev.Size(link)
	require.NoError(t, err)
	assert.Equal(t, uint64(1<<20), size)
	_, err = blockdev.Resolve("/dev/null")
	require.ErrorContains(t, err, "/dev/null is not a block device")
	_, err = blockdev.Resolve(link + ".absent")
	require.ErrorIs(t, err, os.ErrNotExist)
}

// An empty device is formatted, a file system is kept, and a device with other data is not changed.
func TestFormatOnlyEmptyDevice(t *testing.T) {
	for _, tool := range []string{"blkid", "mkfs.ext4", "fsck.ext4"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("missing program: " + tool)
		}
	}
	ctx, device := t.Context(), mounttest.LoopDevice(t, 8<<20)
	require.ErrorContains(t, blockdev.Format(ctx, device, "ext4", true), "has no file system, and is read-only")
	require.ErrorContains(t, blockdev.Format(ctx, device, "../x", false), `"../x" is not a file system type`)
	require.NoError(t, blockdev.Format(ctx, device, "ext4", false))
	format, err := blockdev.Probe(ctx, device)
	require.NoError(t, err)
	assert.Equal(t, "ext4", format)

	dir := t.TempDir()
	require.NoError(t, mount.Disk(device, dir, "ext4", []string{"defaults", "noatime", "x-none", "commit=10"}))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "kept"), nil, 0o600))
	require.NoError(t, blockdev.Grow(ctx, device, dir))
	require.NoError(t, new(mount.Unmounter).Unmount(ctx, dir))
	require.NoError(t, blockdev.Format(ctx, device, "ext4", false))
	require.NoError(t, blockdev.Format(ctx, device, "ext4", true))
	require.NoError(t, mount.Disk(device, dir, "ext4", []string{"ro"}))
	assert.FileExists(t, filepath.Join(dir, "kept"))
	require.Error(t, os.WriteFile(filepath.Join(dir, "kept"), []byte("x"), 0o600))
	require.NoError(t, new(mount.Unmounter).Unmount(ctx, dir))
	_, err = blockdev.Probe(ctx, device+".absent")
	require.Error(t, err)
}
