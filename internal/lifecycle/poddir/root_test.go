// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package poddir_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/backoff"
	"github.com/seed81659283/nodeagent/internal/lifecycle/poddir"
)

// A root directory is locked by one agent at a time, and keeps its owner ID across restarts.
func TestLockRootKeepsOwner(t *testing.T) {
	root := filepath.Join(t.TempDir(), "agent/pods")
	first, err := poddir.LockRoot(root, "")
	require.NoError(t, err)
	owner := first.Owner
	require.Regexp(t, "^[0-9a-f]{16}$", owner)
	requireFile(t, filepath.Join(root, ".owner"), owner+"\n", 0o600)
	_, err = poddir.LockRoot(root, "")
	require.ErrorContains(t, err, root, "the error of the second agent names the directory")
	require.NoError(t, first.Release())

	again, err := poddir.LockRoot(root, "")
	require.NoError(t, err)
	require.Equal(t, owner, again.Owner)
	require.NoError(t, again.Release())
	named, err := poddir.LockRoot(root, "node-7")
	require.NoError(t, err)
	require.Equal(t, "node-7", named.Owner)
	require.NoError(t, named.Release())
	requireFile(t, filepath.Join(root, ".owner"), owner+"\n", 0o600)
	uids, err := poddir.RecordedPods(root)
	require.NoError(t, err)
	require.Empty(t, uids, "the files of the root are not listed as pods")

	other, err := poddir.LockRoot(t.TempDir(), "")
	require.NoError(t, err)
	require.NotEqual(t, owner, other.Owner)
	require.NoError(t, other.Release())
}

// An invalid owner file is an error, because an agent with a new ID would not recognize its pods. The directory is unlocked
// after the error.
func TestLockRootFailsForInvalidOwner(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"empty": func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"half":  func(path string) error { return os.WriteFile(path, []byte("01234567"), 0o600) },
		"two": func(path string) error {
			return os.WriteFile(path, []byte("0123456789abcdef\n0123456789abcdef\n"), 0o600)
		},
		"long":      func(path string) error { return os.WriteFile(path, []byte(strings.Repeat("0", 1<<20)), 0o600) },
		"directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"link":      func(path string) error { return os.Symlink("/dev/zero", path) },
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			path := filepath.Join(root, ".owner")
			require.NoError(t, damage(path))
			_, err := poddir.LockRoot(root, "")
			require.ErrorContains(t, err, path)
			require.NoError(t, os.Remove(path))
			claimed, err := poddir.LockRoot(root, "")
			require.NoError(t, err)
			require.NoError(t, claimed.Release())
		})
	}
	root := filepath.Join(t.TempDir(), "file")
	write(t, root, "")
	_, err := poddir.LockRoot(root, "")
	require.ErrorContains(t, err, "directory of pods")
}

// Next returns a longer back-off for each consecutive eviction. A long time without eviction resets the back-off.
func TestEvictionHistoryNext(t *testing.T) {
	wait := backoff.Policy{First: 10 * time.Second, Max: time.Minute}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var h poddir.EvictionHistory
	for i, seconds := range []time.Duration{10, 20, 40, 60, 60} {
		h = h.Next(now, wait, time.Hour)
		require.Equal(t, i+1, h.Count)
		require.Equal(t, now.Add(seconds*time.Second), h.Until)
		now = h.Until.Add(time.Hour)
	}
	h.Reason = "MemoryPressure"
	h = h.Next(now.Add(time.Second), wait, time.Hour)
	require.Equal(t, poddir.EvictionHistory{Count: 1, Until: now.Add(11 * time.Second), Reason: "MemoryPressure"}, h)
}
