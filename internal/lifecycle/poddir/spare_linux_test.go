// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package poddir_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/lifecycle/poddir"
	"github.com/seed81659283/nodeagent/internal/mounttest"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

func TestMain(m *testing.M) { mounttest.Main(m) }

// On a disk without free blocks or inodes, only evictions and terminal phases are recorded, in spare files. The spare files
// are recreated when space is free again.
func TestRecordOnFullDiskUsesSpareFile(t *testing.T) {
	mounttest.Need(t)
	for name, mount := range map[string]func(t *testing.T, dir string){
		"tmpfs, blocks": func(t *testing.T, dir string) {
			require.NoError(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"))
		},
		"tmpfs, inodes": func(t *testing.T, dir string) {
			require.NoError(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "nr_inodes=60"))
		},
		"ext4, blocks": func(t *testing.T, dir string) { mountExt4(t, dir) },
		"ext4, inodes": func(t *testing.T, dir string) { mountExt4(t, dir, "-N", "64") },
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			mount(t, root)
			t.Cleanup(func() { require.NoError(t, unix.Unmount(root, 0)) })
			claimed, err := poddir.LockRoot(root, "")
			require.NoError(t, err)
			defer func() { require.NoError(t, claimed.Release()) }()
			spare := len(listDir(t, filepath.Join(root, ".spare")))
			require.Positive(t, spare)

			dir := poddir.DirOf(root, "uid-1")
			r := poddir.NewRecorder(dir, "default/web")
			update := func(change func(now *poddir.Record)) error { return r.Update(change) }
			require.NoError(t, update(func(now *poddir.Record) { now.Sized = "1" }))
			fillUp(t, root)

			require.ErrorIs(t, update(func(now *poddir.Record) { now.Sized = "2" }), unix.ENOSPC)
			require.Len(t, listDir(t, filepath.Join(root, ".spare")), spare, "other updates use no spare file")
			require.NoError(t, update(func(now *poddir.Record) { now.Eviction = &podstatus.Eviction{Reason: "Evicted"} }))
			fillUp(t, root) // fills the space of the replaced record
			require.NoError(t, update(func(now *poddir.Record) { now.Status = &corev1.PodStatus{Phase: corev1.PodFailed} }))
			require.True(t, r.IsSaved())
			require.Len(t, listDir(t, filepath.Join(root, ".spare")), spare-2)
			next := poddir.NewRecorder(dir, "default/web")
			require.NoError(t, next.Load())
			require.Equal(t, "Evicted", next.Get().Eviction.Reason)
			require.Equal(t, corev1.PodFailed, next.Get().Status.Phase)
			require.Equal(t, []string{"record.json"}, listDir(t, string(dir)), "the directory of the pod has no other file")

			eaten, err := filepath.Glob(filepath.Join(root, "eate*"))
			require.NoError(t, err)
			for _, path := range eaten {
				require.NoError(t, os.RemoveAll(path))
			}
			require.NoError(t, dir.Remove())
			require.Len(t, listDir(t, filepath.Join(root, ".spare")), spare)
		})
	}
}

// mountExt4 formats and mounts a file system of 4 MiB.
func mountExt4(t *testing.T, dir string, flags ...string) {
	t.Helper()
	device := mounttest.LoopDevice(t, 4<<20)
	out, err := exec.Command("mkfs.ext4", append([]string{"-q", "-m", "0", "-O", "^has_journal"}, append(flags, device)...)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, unix.Mount(device, dir, "ext4", 0, ""))
}

// fillUp uses up all blocks or inodes of the file system at root.
func fillUp(t *testing.T, root string) {
	t.Helper()
	eater, err := os.MkdirTemp(root, "eater")
	if errors.Is(err, unix.ENOSPC) {
		eater, err = root, nil
	}
	require.NoError(t, err)
	for _, size := range []int{64 << 10, 1} {
		for full := false; !full; {
			f, err := os.CreateTemp(eater, "eaten")
			if err == nil {
				_, err = f.Write(make([]byte, size))
				err = errors.Join(err, f.Sync(), f.Close())
			}
			if full = errors.Is(err, unix.ENOSPC); !full {
				require.NoError(t, err)
			}
		}
	}
}

func listDir(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
