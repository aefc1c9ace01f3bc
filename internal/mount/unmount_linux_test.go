// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package mount

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/internal/mounttest"
)

func requireUnmounted(t *testing.T, path string) {
	t.Helper()
	mounted, err := IsMountPoint(path)
	require.NoError(t, err)
	require.False(t, mounted, "%s is unmounted", path)
}

func TestUnmountStackedMounts(t *testing.T) {
	d := makeDirs(t, "target", "plain")
	u := new(Unmounter)
	for range 3 { // stacks mounts
		require.NoError(t, Tmpfs(d[0], TmpfsOptions{}))
	}
	require.NoError(t, u.Unmount(t.Context(), d[0]))
	requireUnmounted(t, d[0])
	require.NoError(t, u.Unmount(t.Context(), d[0]), "a path that is not mounted is no error")
	require.NoError(t, u.Unmount(t.Context(), filepath.Join(d[0], "absent")))
	require.NoError(t, u.Unmount(t.Context(), filepath.Join(d[0], "absent/below")))

	// A symbolic link as the last element of the path is not followed: the mount at its target stays.
	link := filepath.Join(d[1], "link")
	require.NoError(t, Tmpfs(d[0], TmpfsOptions{}))
	require.NoError(t, os.Symlink(d[0], link))
	require.NoError(t, u.Unmount(t.Context(), link))
	mounted, err := IsMountPoint(d[0])
	require.NoError(t, err)
	require.True(t, mounted)
	require.Empty(t, u.Pending())
}

// While a file is open, the mount is detached after twice Grace, and the open file stays usable.
func TestUnmountDetachesBusyMount(t *testing.T) {
	d := makeDirs(t, "target")
	require.NoError(t, Tmpfs(d[0], TmpfsOptions{}))
	f, err := os.Create(filepath.Join(d[0], "open"))
	require.NoError(t, err)
	defer f.Close()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		err := new(Unmounter).Unmount(ctx, d[0])
		require.ErrorIs(t, err, unix.EBUSY)
		require.ErrorIs(t, err, context.DeadlineExceeded)

		start := time.Now()
		require.NoError(t, new(Unmounter).Unmount(t.Context(), d[0]))
		require.Equal(t, 2*defaultGrace, time.Since(start))
	})
	requireUnmounted(t, d[0])
	_, err = f.WriteString("still there")
	require.NoError(t, err)
}

// A forced unmount of a hung file system makes pending accesses fail.
func TestUnmountForcesHungFUSE(t *testing.T) {
	for _, noForce := range []bool{false, true} {
		d := makeDirs(t, "dead")
		abort := mounttest.DeadFUSE(t, d[0])
		returned := mounttest.Blocked(t, func() { _, _ = os.ReadDir(d[0]) })
		synctest.Test(t, func(t *testing.T) {
			u := &Unmounter{NoForce: noForce}
			start := time.Now()
			require.NoError(t, u.Unmount(t.Context(), d[0]))
			require.LessOrEqual(t, time.Since(start), 2*defaultGrace)
		})
		requireUnmounted(t, d[0])
		if noForce {
			abort()
		}
		<-returned
	}
}

// kernel is a fake kernel whose unmount calls hang until they are released. Calls that hang return EINVAL.
type kernel struct {
	mu    sync.Mutex
	calls []int // flags of the calls
	hang  map[int]chan struct{}
}

func (k *kernel) unmount(target string, flags int) error {
	k.mu.Lock()
	k.calls = append(k.calls, flags)
	hang := k.hang[flags]
	k.mu.Unlock()
	if hang != nil {
		<-hang
		return unix.EINVAL
	}
	return unix.Unmount(target, flags)
}

func TestUnmountReturnsWhileCallsHang(t *testing.T) {
	d := makeDirs(t, "target")
	const plain, force, lazy = unix.UMOUNT_NOFOLLOW, unix.UMOUNT_NOFOLLOW | unix.MNT_FORCE, unix.UMOUNT_NOFOLLOW | unix.MNT_DETACH
	synctest.Test(t, func(t *testing.T) {
		require.NoError(t, Tmpfs(d[0], TmpfsOptions{}))
		k := &kernel{hang: map[int]chan struct{}{plain: make(chan struct{}), force: make(chan struct{}), lazy: make(chan struct{})}}
		u := &Unmounter{unmount: k.unmount}
		start := time.Now()
		require.ErrorIs(t, u.Unmount(t.Context(), d[0]), ErrTimeout)
		require.Equal(t, 3*defaultGrace, time.Since(start))
		synctest.Wait()
		require.Equal(t, []int{plain, force, lazy}, k.calls)
		require.Equal(t, []string{d[0]}, u.Pending())

		require.ErrorIs(t, u.Unmount(t.Context(), d[0]), ErrTimeout)
		synctest.Wait()
		require.Len(t, k.calls, 3, "a hanging call is not repeated")

		k.mu.Lock()
		wait := k.hang[lazy]
		delete(k.hang, lazy)
		k.mu.Unlock()
		close(wait)
		synctest.Wait()
		start = time.Now()
		require.NoError(t, u.Unmount(t.Context(), d[0]))
		require.Equal(t, 2*defaultGrace, time.Since(start))
		requireUnmounted(t, d[0])
		require.Equal(t, []string{d[0]}, u.Pending())

		close(k.hang[plain])
		close(k.hang[force])
		synctest.Wait()
		require.Empty(t, u.Pending())
	})
}

// Unmount succeeds if a hung call has already detached the mount.
func TestUnmountSucceedsIfHungCallDetached(t *testing.T) {
	d := makeDirs(t, "target")
	synctest.Test(t, func(t *testing.T) {
		require.NoError(t, Tmpfs(d[0], TmpfsOptions{}))
		var calls []int
		release := make(chan struct{})
		u := &Unmounter{unmount: func(target string, flags int) error {
			calls = append(calls, flags)
			err := unix.Unmount(target, flags)
			<-release
			return err
		}}
		require.NoError(t, u.Unmount(t.Context(), d[0]))
		synctest.Wait()
		require.Len(t, calls, 1)
		require.Equal(t, []string{d[0]}, u.Pending())
		close(release)
		synctest.Wait()
		require.Empty(t, u.Pending())
	})
}

// Unmount waits for a mount that is busy only briefly.
func TestUnmountWaitsForBriefUse(t *testing.T) {
	d := makeDirs(t, "target")
	synctest.Test(t, func(t *testing.T) {
		require.NoError(t, Tmpfs(d[0], TmpfsOptions{}))
		var calls []int
		u := &Unmounter{unmount: func(target string, flags int) error {
			if calls = append(calls, flags); len(calls) < 5 {
				return unix.EBUSY
			}
			return unix.Unmount(target, flags)
		}}
		start := time.Now()
		require.NoError(t, u.Unmount(t.Context(), d[0]))
		require.Equal(t, 15*busyFirst, time.Since(start))
		require.Equal(t, slices.Repeat([]int{unix.UMOUNT_NOFOLLOW}, 5), calls)
	})
}
