// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package fsgroup

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/internal/mounttest"
)

// attack replaces a file and a directory of a volume by links that leave the volume, and back, until stop is called.
func attack(t *testing.T, root, outside string) (stop func()) {
	t.Helper()
	putFile(t, 0o600, root, "file")
	putFile(t, 0o600, root, "dir/f")
	require.NoError(t, os.Symlink(filepath.Join(outside, "f"), filepath.Join(root, "link")))
	require.NoError(t, os.Symlink(outside, filepath.Join(root, "linkdir")))
	quit := make(chan struct{})
	var attackers sync.WaitGroup
	for name, link := range map[string]string{"file": "link", "dir": "linkdir"} {
		attackers.Go(func() {
			for {
				select {
				case <-quit:
					return
				default:
				}
				_ = unix.Renameat2(unix.AT_FDCWD, filepath.Join(root, name), unix.AT_FDCWD, filepath.Join(root, link), unix.RENAME_EXCHANGE)
				_ = unix.Chmod(filepath.Join(root, "dir/f"), 0o600) // so that each walk has a mode to change
			}
		})
	}
	return func() {
		close(quit)
		attackers.Wait()
	}
}

// escapes walks a volume under attack for duration d, and reports whether a walk has changed a file outside of it.
func escapes(t *testing.T, d time.Duration, walk func(root string, gid int64)) bool {
	t.Helper()
	needRoot(t)
	top := t.TempDir()
	outside, root := putDir(t, 0o700, top, "outside"), putDir(t, 0o755, top, "root")
	secret := putFile(t, 0o600, outside, "f")
	defer attack(t, root, outside)()
	gid := int64(group)
	for end := time.Now().Add(d); time.Now().Before(end); gid++ {
		walk(root, gid)
		var st unix.Stat_t
		require.NoError(t, unix.Stat(secret, &st))
		// The attacker sets mode 0600 through its link; a walk adds permissions, or changes the group.
		if st.Gid != 7 || st.Mode&0o7777 != 0o600 || modeAndGroup(t, outside) != "0700 0" {
			return true
		}
	}
	return false
}

func TestConcurrentLinksDoNotEscape(t *testing.T) {
	require.False(t, escapes(t, mounttest.RaceTime(t), func(root string, gid int64) {
		_ = Apply(t.Context(), root, gid, Options{})
	}))
}

// A walk by paths, like that of the kubelet, leaves the volume: this shows that the attack works.
func TestWalkByPathsEscapes(t *testing.T) {
	require.True(t, escapes(t, 30*time.Second, func(root string, gid int64) {
		_ = filepath.Walk(root, func(path string, info os.FileInfo, err error) error {
			if err != nil {
				return nil
			}
			_ = os.Lchown(path, -1, int(gid))
			if info.Mode()&os.ModeSymlink == 0 {
				_ = os.Chmod(path, info.Mode()|0o660)
			}
			return nil
		})
	}), "the walk by paths did not escape, so the race tests nothing")
}
