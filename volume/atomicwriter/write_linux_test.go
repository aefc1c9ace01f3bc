// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package atomicwriter

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/internal/mounttest"
)

func TestMain(m *testing.M) { mounttest.Main(m) }

// newPayload returns a payload from "path=content" words.
func newPayload(words ...string) map[string]File {
	payload := map[string]File{}
	for _, word := range words {
		path, content, _ := strings.Cut(word, "=")
		payload[path] = File{Data: []byte(content), Mode: 0o644}
	}
	return payload
}

// readThroughLinks returns the contents of each file that a reader finds through the links.
func readThroughLinks(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	names, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range names {
		if strings.HasPrefix(e.Name(), "..") {
			continue
		}
		collectFiles(t, filepath.Join(dir, e.Name()), e.Name(), found)
	}
	return found
}

// currentFiles returns the contents of the files of the current version.
func currentFiles(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	collectFiles(t, filepath.Join(dir, dataName), "", found)
	return found
}

func collectFiles(t *testing.T, path, name string, found map[string]string) {
	t.Helper()
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		found[name] = "-> nothing"
		return
	}
	require.NoError(t, err)
	if !info.IsDir() {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		found[name] = string(data)
		return
	}
	entries, err := os.ReadDir(path)
	require.NoError(t, err)
	for _, e := range entries {
		collectFiles(t, filepath.Join(path, e.Name()), filepath.Join(name, e.Name()), found)
	}
}

// expectedFiles returns the files that a reader must find of a payload.
func expectedFiles(payload map[string]File) map[string]string {
	found := map[string]string{}
	for path, file := range payload {
		found[path] = string(file.Data)
	}
	return found
}

// requireClean requires that a directory has a payload and nothing else.
func requireClean(t *testing.T, dir string, payload map[string]File) {
	t.Helper()
	require.Equal(t, expectedFiles(payload), readThroughLinks(t, dir))
	require.Equal(t, expectedFiles(payload), currentFiles(t, dir))
	version, err := os.Readlink(filepath.Join(dir, dataName))
	require.NoError(t, err)
	allowed := map[string]bool{version: true, dataName: true}
	for path := range payload {
		first, _, _ := strings.Cut(path, "/")
		allowed[first] = true
	}
	names, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range names {
		require.True(t, allowed[e.Name()], "%s is a stale entry", e.Name())
	}
}

func TestWriteReplacesPayload(t *testing.T) {
	dir := t.TempDir()
	for _, step := range []struct {
		payload map[string]File
		changed bool
	}{
		{newPayload("a=1", "b=2"), true},
		{newPayload("a=1", "b=2"), false},
		{newPayload("a=1", "b=3"), true},
		{newPayload("a=1", "b=33"), true},
		{newPayload("a=1"), true},
		{newPayload("dir/x=1", "dir/y=2", "dir/deep/z=3"), true},
		{newPayload("dir/x=1", "dir/y=2", "dir/deep/z=3"), false},
		{newPayload("dir/x=1", "dir/y=2"), true},
		{newPayload("dir/x=1", "dir/y=2", "dir/w=3"), true},
		{newPayload("dir=now a file"), true},
		{newPayload("dir/x=1"), true},
		{newPayload("dir/x=1", "empty="), true},
		{newPayload("large=" + strings.Repeat("0123456789", 10_000)), true},
		{newPayload("large=" + strings.Repeat("0123456789", 10_000)), false},
		{newPayload("large=" + strings.Repeat("0123456789", 9_999) + "012345678x"), true},
		{newPayload(), true},
		{newPayload(), false},
		{newPayload("a=1"), true},
	} {
		changed, err := Write(dir, step.payload, Options{})
		require.NoError(t, err)
		require.Equal(t, step.changed, changed, "%v", expectedFiles(step.payload))
		requireClean(t, dir, step.payload)
	}
	link, err := os.Readlink(filepath.Join(dir, "a"))
	require.NoError(t, err)
	require.Equal(t, "..data/a", link)

	_, err = Write(filepath.Join(dir, "absent"), nil, Options{})
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = Write(dir, newPayload("/a=1"), Options{})
	require.EqualError(t, err, `path "/a": must be relative`)
	requireClean(t, dir, newPayload("a=1"))
}

func TestWriteKeepsUnchangedPayload(t *testing.T) {
	dir := t.TempDir()
	payload := newPayload("a=1", "dir/b=2")
	_, err := Write(dir, payload, Options{})
	require.NoError(t, err)
	payload["a"] = File{Data: []byte("1"), Mode: 0o600} // another mode alone does not count as a change
	entries, err := parsePayload(payload)
	require.NoError(t, err)
	o := Options{SetPerms: func(string) error { return errors.New("called") }}
	changed, err := writePayload(dir, entries, o, func(call string) error { return errors.New(call) })
	require.NoError(t, err)
	require.False(t, changed)
	info, err := os.Stat(filepath.Join(dir, "a"))
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o644), info.Mode())

	require.NoError(t, os.Remove(filepath.Join(dir, "a"))) // the write recreates the removed link
	changed, err = Write(dir, payload, Options{})
	require.NoError(t, err)
	require.False(t, changed)
	requireClean(t, dir, payload)
}

func TestWriteSetsModes(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	dir := t.TempDir()
	payload := map[string]File{
		"open":        {Mode: 0o666, Data: []byte("x")},
		"closed":      {Mode: 0o400},
		"none":        {Mode: 0},
		"dir/deep/it": {Mode: 0o640},
	}
	var seen string
	_, err := Write(dir, payload, Options{SetPerms: func(version string) error {
		seen = version
		_, err := os.Lstat(filepath.Join(dir, dataName))
		require.ErrorIs(t, err, fs.ErrNotExist, "no version is published yet")
		return os.Chmod(filepath.Join(version, "none"), 0o004)
	}})
	require.NoError(t, err)
	version, err := filepath.EvalSymlinks(filepath.Join(dir, dataName))
	require.NoError(t, err)
	require.Equal(t, version, seen)
	for path, mode := range map[string]fs.FileMode{
		"open": 0o666, "closed": 0o400, "none": 0o004, "dir": 0o755, "dir/deep": 0o755, "dir/deep/it": 0o640, "": 0o755,
	} {
		info, err := os.Stat(filepath.Join(version, path))
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode().Perm(), path)
	}
}

func TestWriteSetsOwners(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("changing the owner of files requires root")
	}
	dir := t.TempDir()
	payload := map[string]File{
		"mine":     {Mode: 0o600},
		"theirs":   {Mode: 0o600, Owner: new(int64(1234))},
		"dir/mine": {Mode: 0o600},
		"dir/x":    {Mode: 0o600, Owner: new(int64(4321))},
	}
	_, err := Write(dir, payload, Options{})
	require.NoError(t, err)
	for path, owner := range map[string]uint32{
		"mine": 0, "theirs": 1234, "dir": 4321, "..data/mine": 0, "..data/theirs": 1234, "..data/dir": 0, "dir/mine": 0, "dir/x": 4321,
	} {
		var st unix.Stat_t
		require.NoError(t, unix.Lstat(filepath.Join(dir, path), &st))
		require.Equal(t, owner, st.Uid, path)
	}
}

// The new version does not fit on the disk and is removed.
func TestWriteOnFullDiskKeepsOldVersion(t *testing.T) {
	mounttest.Need(t)
	dir := t.TempDir()
	require.NoError(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=262144"))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, 0)) })
	old := newPayload("a=1", "b="+strings.Repeat("x", 100_000))
	_, err := Write(dir, old, Options{})
	require.NoError(t, err)
	for range 10 {
		changed, err := Write(dir, newPayload("a=2", "b="+strings.Repeat("y", 200_000)), Options{})
		require.ErrorIs(t, err, unix.ENOSPC)
		require.False(t, changed)
		require.NotContains(t, err.Error(), "yyy")
		requireClean(t, dir, old)
	}
	_, err = Write(dir, newPayload("a=2", "b="+strings.Repeat("z", 100_000)), Options{})
	require.NoError(t, err, "the remaining space is sufficient")
}

func TestIsVersionMatchesKubeletNames(t *testing.T) {
	for name, is := range map[string]bool{
		"..2026_01_02_03_04_05.123":                           true,
		"..2026_01_02_03_04_05.1":                             true,
		"..2026_01_02_03_04_05.":                              false,
		"..2026_01_02_03_04_05":                               false,
		"..2026_01_02_03_04_05.1/..":                          false,
		"..2026_01_02_03_04_05.1x":                            false,
		"..2026_01_02_03_04x05.1":                             false,
		"..x026_01_02_03_04_05.1":                             false,
		".x2026_01_02_03_04_05.1":                             false,
		"..data":                                              false,
		"..data_tmp":                                          false,
		"..2026_01_02_03_04_05." + strings.Repeat("1", 1_000): false,
	} {
		require.Equal(t, is, isVersion(name), name)
	}
}
