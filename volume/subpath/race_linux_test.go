// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package subpath

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/internal/mounttest"
)

// attack replaces the directory "a/b" of a volume by links that leave the volume, and back, until stop is closed.
func (h *host) attack(stop <-chan struct{}) *sync.WaitGroup {
	h.t.Helper()
	outside := filepath.Join(h.root, "outside")
	h.runScript("dir a/b/c; dir ROOT/outside/c; link link ROOT/outside; link up ../../outside")
	path := func(name string) string { return filepath.Join(h.volume, name) }
	var attackers sync.WaitGroup
	attackers.Go(func() {
		for links := []string{"link", "up"}; ; links[0], links[1] = links[1], links[0] {
			select {
			case <-stop:
				return
			default:
			}
			_ = unix.Renameat2(unix.AT_FDCWD, path("a/b"), unix.AT_FDCWD, path(links[0]), unix.RENAME_EXCHANGE)
			_ = unix.Renameat2(unix.AT_FDCWD, path("a/b"), unix.AT_FDCWD, path(links[0]), unix.RENAME_EXCHANGE)
			_ = os.Remove(path("a/new"))
			_ = os.Symlink(outside, path("a/new"))
			_ = os.Remove(path("a/new"))
		}
	})
	return &attackers
}

// escapes opens subPaths of the volume for duration d, and until one could be opened. It reports whether an opened or created
// file was outside of the volume.
func (h *host) escapes(d time.Duration, open func(subPath string) (unix.Stat_t, error)) (escaped bool, opened int) {
	h.t.Helper()
	stop := make(chan struct{})
	attackers := h.attack(stop)
	defer attackers.Wait()
	defer close(stop)
	var outside unix.Stat_t
	require.NoError(h.t, unix.Stat(filepath.Join(h.root, "outside/c"), &outside))
	for began := time.Now(); time.Since(began) < d || opened == 0 && time.Since(began) < time.Minute; {
		for _, subPath := range []string{"a/b/c", "a/new/made"} {
			st, err := open(subPath)
			if err != nil {
				continue
			}
			opened++
			made, err := os.ReadDir(filepath.Join(h.root, "outside"))
			require.NoError(h.t, err)
			if st.Ino == outside.Ino || len(made) > 1 {
				return true, opened
			}
		}
	}
	return false, opened
}

// statTarget returns the attributes of the file that is mounted on the target, or err if it is not nil.
func (h *host) statTarget(err error) (st unix.Stat_t, _ error) {
	if err == nil {
		err = unix.Lstat(h.target(), &st)
	}
	return st, err
}

func TestConcurrentLinksDoNotEscape(t *testing.T) {
	h := newHost(t)
	escaped, opened := h.escapes(mounttest.RaceTime(t)/2, func(subPath string) (unix.Stat_t, error) {
		_, err := h.prepare(subPath)
		return h.statTarget(err)
	})
	require.False(t, escaped)
	require.Positive(t, opened)
	h.requireClean()
}

func TestConcurrentLinksDoNotEscapeStepwise(t *testing.T) {
	h := newHost(t)
	escaped, opened := h.escapes(mounttest.RaceTime(t)/2, func(subPath string) (st unix.Stat_t, err error) {
		v, err := openVolume(h.volume)
		require.NoError(t, err)
		defer v.close()
		v.stepwise = true
		fd, err := v.openPath(subPath)
		if err != nil {
			return st, err
		}
		defer unix.Close(fd)
		return st, unix.Fstat(fd, &st)
	})
	require.False(t, escaped)
	require.Positive(t, opened)
}

// Checking a path before using it is not safe: this shows that the attack works.
func TestCheckThenUseEscapes(t *testing.T) {
	h := newHost(t)
	require.NoError(t, os.MkdirAll(h.target(), 0o755))
	escaped, _ := h.escapes(30*time.Second, func(subPath string) (unix.Stat_t, error) {
		path := filepath.Join(h.volume, subPath)
		if resolved, err := filepath.EvalSymlinks(path); err == nil && !strings.HasPrefix(resolved, h.volume) {
			return unix.Stat_t{}, os.ErrPermission
		}
		if err := os.MkdirAll(path, 0o755); err != nil {
			return unix.Stat_t{}, err
		}
		_ = unix.Unmount(h.target(), unix.MNT_DETACH)
		return h.statTarget(unix.Mount(path, h.target(), "", unix.MS_BIND, ""))
	})
	require.True(t, escaped, "the check before use did not escape, so the race tests nothing")
}
