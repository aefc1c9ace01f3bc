// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package poddir_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/poddir"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

// A container with a hostPath volume can replace files that the agent reads or writes as root. The agent must neither read
// nor change protected files through a replacement, and must not hang.

// hostileFiles returns functions that replace a file, by the kind of replacement. No test may read or change the target of the
// link.
func hostileFiles(t *testing.T) map[string]func(path string) {
	secret := filepath.Join(t.TempDir(), "shadow")
	write(t, secret, "secret")
	t.Cleanup(func() { requireFile(t, secret, "secret", 0o600) })
	put := func(f func(path string) error) func(path string) {
		return func(path string) {
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o750))
			require.NoError(t, os.RemoveAll(path))
			require.NoError(t, f(path))
		}
	}
	return map[string]func(path string){
		"link":             put(func(path string) error { return os.Symlink(secret, path) }),
		"dangling link":    put(func(path string) error { return os.Symlink("/does/not/exist", path) }),
		"link to itself":   put(func(path string) error { return os.Symlink(filepath.Base(path), path) }),
		"link to a device": put(func(path string) error { return os.Symlink("/dev/zero", path) }),
		"pipe":             put(func(path string) error { return syscall.Mkfifo(path, 0o666) }),
		"directory":        put(func(path string) error { return os.Mkdir(path, 0o755) }),
		"socket":           put(func(path string) error { return syscall.Mknod(path, syscall.S_IFSOCK|0o666, 0) }),
	}
}

func TestReadMessageIgnoresHostileFile(t *testing.T) {
	for name, trap := range hostileFiles(t) {
		t.Run(name, func(t *testing.T) {
			d, c := poddir.DirOf(t.TempDir(), "uid-a"), exited("main")
			path, err := d.CreateMessageFile("main", 0)
			require.NoError(t, err)
			trap(path)
			assert.Empty(t, d.ReadMessage(t.Context(), c))
			path, err = d.CreateMessageFile("main", 0)
			require.NoError(t, err, "the replacement is replaced")
			requireFile(t, path, "", 0o666)

			setFallbackToLogs(c)
			c.LogPath = filepath.Join(t.TempDir(), "0.log")
			trap(c.LogPath)
			assert.Empty(t, d.ReadMessage(t.Context(), c))
		})
	}
}

func TestWriteHostsFileReplacesHostileFile(t *testing.T) {
	for name, trap := range hostileFiles(t) {
		t.Run(name, func(t *testing.T) {
			d := poddir.DirOf(t.TempDir(), "uid-a")
			trap(filepath.Join(string(d), "etc-hosts"))
			path, err := d.WriteHostsFile(podtest.Pod("a"), []string{"10.0.0.7"}, podspec.Options{})
			require.NoError(t, err)
			requireFile(t, path, hostsOfA, 0o644)
		})
	}
}

func TestRecorderReplacesHostileFile(t *testing.T) {
	for name, trap := range hostileFiles(t) {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			d := poddir.DirOf(root, "uid-a")
			trap(filepath.Join(string(d), "record.json"))
			r := poddir.NewRecorder(d, "default/a")
			require.ErrorContains(t, r.Load(), "it is no regular file")
			require.Zero(t, r.Get())
			uids, err := poddir.RecordedPods(root)
			require.NoError(t, err)
			require.Empty(t, uids, "a directory without a valid record is not listed")
		})
	}
}

// A parent directory replaced by a link is not followed.
func TestHostileParentDirectoriesNotFollowed(t *testing.T) {
	outside := t.TempDir()
	secret := filepath.Join(outside, "0")
	write(t, secret, "secret")
	for _, replaced := range []string{"containers", "containers/main"} {
		d := poddir.DirOf(t.TempDir(), "uid-a")
		path, err := d.CreateMessageFile("main", 0)
		require.NoError(t, err)
		require.Equal(t, filepath.Join(string(d), "containers/main/0"), path)
		replaced = filepath.Join(string(d), replaced)
		require.NoError(t, os.RemoveAll(replaced))
		require.NoError(t, os.Symlink(outside, replaced))
		assert.Empty(t, d.ReadMessage(t.Context(), exited("main")))
		_, err = d.CreateMessageFile("main", 0)
		require.Error(t, err)
		requireFile(t, secret, "secret", 0o600)
		require.NoDirExists(t, filepath.Join(outside, "main"))
	}
}

// A pod that ships logs often mounts the log directories. Replaced directories are not followed.
func TestHostileLogDirectoriesNotFollowed(t *testing.T) {
	outside := t.TempDir()
	kept := filepath.Join(outside, "main/7.log")
	for _, replaced := range []string{"", "main"} {
		for kind, trap := range map[string]func(path string) error{
			"link": func(path string) error { return os.Symlink(filepath.Join(outside, replaced), path) },
			"pipe": func(path string) error { return syscall.Mkfifo(path, 0o666) },
		} {
			t.Run(strings.TrimSpace(kind+" "+replaced), func(t *testing.T) {
				write(t, kept, "secret")
				l := poddir.Logs{Root: t.TempDir(), Pod: podOfLogs}
				require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(l.Directory(), replaced)), 0o755))
				require.NoError(t, trap(filepath.Join(l.Directory(), replaced)))
				n, err := l.NextAttempt("main")
				assert.Error(t, err)
				assert.Zero(t, n)
				c := exited("main")
				c.Attempt = 7
				assert.Error(t, l.Remove(cri.Pod{}, c))
				requireFile(t, kept, "secret", 0o600)
			})
		}
	}
}
