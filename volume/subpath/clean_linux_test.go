// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package subpath

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/mount"
	"github.com/seed81659283/nodeagent/internal/mounttest"
)

func TestCleanRemovesTargets(t *testing.T) {
	for _, test := range []struct {
		name   string
		script string   // creates files; paths from the root
		binds  []string // targets with a bind mount
		left   []string // paths that stay, which is an error
	}{
		{name: "missing directory"},
		{name: "directory without mount", script: "dir ROOT/pod/volume-subpaths/data/c/0"},
		{name: "container directory without target", script: "dir ROOT/pod/volume-subpaths/data/c; dir ROOT/empty"},
		{name: "one mount", binds: []string{"data/c/0"}},
		{name: "mounts and a directory without mount", script: "dir ROOT/pod/volume-subpaths/data/c/9", binds: []string{"data/c/0", "data/c/1", "data/d/0", "other/c/0"}},
		{name: "mount of a directory with files", script: "file a/f; file a/deep/f", binds: []string{"data/c/0"}},
		{name: "file with content", script: "file ROOT/pod/volume-subpaths/data/c/0", binds: []string{"data/c/1"}, left: []string{"data/c/0"}},
		{name: "file in place of a container directory", script: "file ROOT/pod/volume-subpaths/data/c", binds: []string{"data/d/1"}, left: []string{"data/c"}},
		{name: "directory with an entry", script: "dir ROOT/pod/volume-subpaths/data/c/0/deep", left: []string{"data/c/0/deep"}},
		{name: "link", script: "dir ROOT/outside; link ROOT/pod/volume-subpaths/data/c/0 ROOT/outside", left: []string{"data/c/0"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newHost(t)
			h.runScript("file a/kept; " + test.script)
			for _, target := range test.binds {
				_, err := Prepare(t.Context(), Request{Volume: h.volume, SubPath: "a", Target: filepath.Join(h.path, target)})
				require.NoError(t, err)
			}
			err := Clean(t.Context(), h.path)
			table, tableErr := mount.ReadTable()
			require.NoError(t, tableErr)
			require.Empty(t, mount.MountsBelow(table, h.path))
			require.FileExists(t, filepath.Join(h.volume, "a/kept"))
			if test.left == nil {
				require.NoError(t, err)
				require.NoDirExists(t, h.path)
				return
			}
			require.Error(t, err)
			for _, path := range test.left {
				_, err := os.Lstat(filepath.Join(h.path, path))
				require.NoError(t, err)
			}
			for _, path := range test.binds {
				require.NoDirExists(t, filepath.Join(h.path, path))
			}
		})
	}
}

func TestCleanOfTargetOrVolume(t *testing.T) {
	h := newHost(t)
	h.runScript("dir a; file f")
	for _, target := range []string{"data/c/0", "data/c/1", "other/c/0"} {
		_, err := Prepare(t.Context(), Request{Volume: h.volume, SubPath: "f", Target: filepath.Join(h.path, target)})
		require.NoError(t, err)
	}
	require.NoError(t, Clean(t.Context(), filepath.Join(h.path, "data/c/0")))
	require.NoFileExists(t, filepath.Join(h.path, "data/c/0"))
	require.FileExists(t, filepath.Join(h.path, "data/c/1"))
	require.NoError(t, Clean(t.Context(), filepath.Join(h.path, "data")))
	require.NoDirExists(t, filepath.Join(h.path, "data"))
	require.FileExists(t, filepath.Join(h.path, "other/c/0"))

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, Clean(ctx, h.path), context.Canceled)
	require.FileExists(t, filepath.Join(h.path, "other/c/0"))
	h.requireClean()
}

// The server of the file system on the target has exited.
func TestCleanDetachesHungFileSystem(t *testing.T) {
	h := newHost(t)
	h.runScript("dir ROOT/pod/volume-subpaths/data/c/0")
	mounttest.DeadFUSE(t, h.target()[:len(h.target())-len("container/0")]+"c/0")
	h.requireClean()
}
