// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package subpath

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/internal/mount"
	"github.com/seed81659283/nodeagent/internal/mounttest"
)

// host is a directory with a volume, files outside of it, and a directory for targets.
type host struct {
	t                       *testing.T
	root, volume, pod, path string // path: the directory of the pod's subPaths
}

func newHost(t *testing.T) *host {
	t.Helper()
	mounttest.Need(t)
	root, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	h := &host{t: t, root: root, volume: filepath.Join(root, "volume"), pod: filepath.Join(root, "pod")}
	h.path = filepath.Join(h.pod, "volume-subpaths")
	require.NoError(t, os.MkdirAll(h.volume, 0o755))
	t.Cleanup(func() {
		table, err := mount.ReadTable()
		require.NoError(t, err)
		for _, m := range mount.MountsBelow(table, root) {
			_ = unix.Unmount(m.Point, unix.MNT_DETACH)
		}
	})
	return h
}

// runScript executes lines such as "dir PATH", "file PATH", "link PATH TARGET", "pipe PATH", "socket PATH". VOLUME and ROOT stand for
// the paths of volume and host.
func (h *host) runScript(script string) {
	h.t.Helper()
	script = strings.NewReplacer("VOLUME", h.volume, "ROOT", h.root).Replace(script)
	for line := range strings.SplitSeq(script, "; ") {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		path := words[1]
		if !filepath.IsAbs(path) {
			path = filepath.Join(h.volume, path)
		}
		require.NoError(h.t, os.MkdirAll(filepath.Dir(path), 0o755))
		switch words[0] {
		case "dir":
			require.NoError(h.t, os.MkdirAll(path, 0o755))
		case "file":
			require.NoError(h.t, os.WriteFile(path, []byte(path), 0o644))
		case "link":
			require.NoError(h.t, os.Symlink(words[2], path))
		case "pipe":
			require.NoError(h.t, unix.Mkfifo(path, 0o644))
		case "socket":
			l, err := net.Listen("unix", path)
			require.NoError(h.t, err)
			h.t.Cleanup(func() { _ = l.Close() })
		default:
			h.t.Fatalf("unknown line %q", line)
		}
	}
}

func (h *host) target() string { return filepath.Join(h.path, "data", "container", "0") }

func (h *host) prepare(subPath string) (string, error) {
	return Prepare(h.t.Context(), Request{Volume: h.volume, SubPath: subPath, Target: h.target()})
}

// requireBound requires that the target is a bind mount of the file at a path.
func (h *host) requireBound(path string) {
	h.t.Helper()
	want, err := os.Stat(path)
	require.NoError(h.t, err)
	got, err := os.Lstat(h.target())
	require.NoError(h.t, err)
	require.True(h.t, os.SameFile(want, got), "the target is not %s", path)
	mounted, err := mount.IsMountPoint(h.target())
	require.NoError(h.t, err)
	require.True(h.t, mounted)
}

func (h *host) requireClean() {
	h.t.Helper()
	require.NoError(h.t, Clean(h.t.Context(), h.path))
	require.NoDirExists(h.t, h.path)
	table, err := mount.ReadTable()
	require.NoError(h.t, err)
	require.Empty(h.t, mount.MountsBelow(table, h.pod))
}
