// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package atomicwriter

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// The directory contains entries that a crash of this writer or of the kubelet, or a container, has left.
func TestWriteRemovesStaleEntries(t *testing.T) {
	const stale = "..2020_01_02_03_04_05.1"
	for _, test := range []struct {
		name string
		make func(t *testing.T, dir, outside string)
	}{
		{"next link", func(t *testing.T, dir, _ string) { symlink(t, stale, dir, newDataName) }},
		{"next link points outside", func(t *testing.T, dir, outside string) { symlink(t, outside, dir, newDataName) }},
		{"next directory", func(t *testing.T, dir, _ string) { writeStaleFile(t, dir, newDataName+"/x") }},
		{"next file", func(t *testing.T, dir, _ string) { writeStaleFile(t, dir, newDataName) }},
		{"stale version", func(t *testing.T, dir, _ string) { writeStaleFile(t, dir, stale+"/secret/deep") }},
		{"stale version is a link", func(t *testing.T, dir, outside string) { symlink(t, outside, dir, stale) }},
		{"link in a stale version", func(t *testing.T, dir, outside string) {
			writeStaleFile(t, dir, stale+"/x")
			symlink(t, outside, dir, stale+"/out")
		}},
		{"link to a removed file", func(t *testing.T, dir, _ string) { symlink(t, dataName+"/gone", dir, "gone") }},
		{"data link points outside", func(t *testing.T, dir, outside string) { relinkData(t, outside, dir) }},
		{"data link points to the parent directory", func(t *testing.T, dir, _ string) { relinkData(t, "../outside", dir) }},
		{"data link points to itself", func(t *testing.T, dir, _ string) { relinkData(t, dataName, dir) }},
		{"data link is dangling", func(t *testing.T, dir, _ string) { relinkData(t, stale, dir) }},
		{"data link points to a link", func(t *testing.T, dir, outside string) {
			symlink(t, outside, dir, stale)
			relinkData(t, stale, dir)
		}},
		{"data is a directory", func(t *testing.T, dir, _ string) {
			require.NoError(t, os.Remove(filepath.Join(dir, dataName)))
			writeStaleFile(t, dir, dataName+"/a")
		}},
		{"data is a file", func(t *testing.T, dir, _ string) {
			require.NoError(t, os.Remove(filepath.Join(dir, dataName)))
			writeStaleFile(t, dir, dataName)
		}},
		{"link to a file with the same content", func(t *testing.T, dir, outside string) { replaceFileByLink(t, outside+"/same", dir) }},
		{"named pipe in place of a file", func(t *testing.T, dir, _ string) {
			require.NoError(t, os.Remove(filepath.Join(dir, dataName, "a")))
			require.NoError(t, unix.Mkfifo(filepath.Join(dir, dataName, "a"), 0o644))
		}},
		{"directory in place of a file", func(t *testing.T, dir, _ string) {
			require.NoError(t, os.Remove(filepath.Join(dir, dataName, "a")))
			writeStaleFile(t, dir, dataName+"/a/deep")
		}},
		{"additional file", func(t *testing.T, dir, _ string) { writeStaleFile(t, dir, dataName+"/more") }},
		{"missing file", func(t *testing.T, dir, _ string) { require.NoError(t, os.Remove(filepath.Join(dir, dataName, "a"))) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			top := t.TempDir()
			dir, outside := filepath.Join(top, "volume"), filepath.Join(top, "outside")
			require.NoError(t, os.Mkdir(dir, 0o755))
			writeStaleFile(t, outside, "kept")
			require.NoError(t, os.WriteFile(filepath.Join(outside, "same"), []byte("1"), 0o644))
			payload := newPayload("a=1", "dir/b=2")
			_, err := Write(dir, payload, Options{})
			require.NoError(t, err)
			before, err := os.Readlink(filepath.Join(dir, dataName))
			require.NoError(t, err)

			test.make(t, dir, outside)
			changed, err := Write(dir, payload, Options{})
			require.NoError(t, err)
			after, err := os.Readlink(filepath.Join(dir, dataName))
			require.NoError(t, err)
			require.Equal(t, changed, before != after)
			requireClean(t, dir, payload)
			requireNames(t, outside, "kept", "same")
		})
	}
}

func symlink(t *testing.T, target, dir, name string) {
	t.Helper()
	require.NoError(t, os.Symlink(target, filepath.Join(dir, name)))
}

// relinkData changes the target of the link to the current version, which becomes stale.
func relinkData(t *testing.T, target, dir string) {
	t.Helper()
	require.NoError(t, os.Remove(filepath.Join(dir, dataName)))
	symlink(t, target, dir, dataName)
}

// replaceFileByLink replaces a file of the current version by a link.
func replaceFileByLink(t *testing.T, target, dir string) {
	t.Helper()
	require.NoError(t, os.Remove(filepath.Join(dir, dataName, "a")))
	symlink(t, target, dir, dataName+"/a")
}

func writeStaleFile(t *testing.T, dir, name string) {
	t.Helper()
	path := filepath.Join(dir, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte("secret"), 0o600))
}

func TestManyStaleEntriesRemovedBySeveralWrites(t *testing.T) {
	dir := newDirWithPayload(t, newPayload("a=1"))
	for i := range maxStale + 10 {
		writeStaleFile(t, dir, "..2020_01_02_03_04_05."+strconv.Itoa(i))
		symlink(t, dataName+"/"+strconv.Itoa(i), dir, strconv.Itoa(i))
	}
	for range 2 {
		changed, err := Write(dir, newPayload("a=1"), Options{})
		require.NoError(t, err)
		require.False(t, changed)
	}
	requireClean(t, dir, newPayload("a=1"))
}

// The foreign entries are links and directories of a container, and mount points of other volumes.
func TestWriteKeepsForeignEntries(t *testing.T) {
	dir := newDirWithPayload(t, newPayload("a=1", "b=2"))
	symlink(t, "..data/elsewhere", dir, "link")
	symlink(t, "/etc", dir, "absolute")
	writeStaleFile(t, dir, "nested/mount")
	_, err := Write(dir, newPayload("a=2"), Options{})
	require.NoError(t, err)
	version, err := os.Readlink(filepath.Join(dir, dataName))
	require.NoError(t, err)
	requireNames(t, dir, version, dataName, "a", "absolute", "link", "nested")
}
