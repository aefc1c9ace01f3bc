// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package atomicwriter

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// updates are pairs of an older and a newer payload.
var updates = []struct {
	name     string
	old, new map[string]File
}{
	{"first", nil, newPayload("a=1", "dir/b=2")},
	{"content", newPayload("a=1", "b=1"), newPayload("a=2", "b=2")},
	{"more", newPayload("a=1"), newPayload("a=1", "b=2", "dir/c=3", "dir/deep/d=4")},
	{"less", newPayload("a=1", "b=2", "dir/c=3"), newPayload("a=1")},
	{"none", newPayload("a=1", "dir/c=3"), newPayload()},
	{"file to directory", newPayload("a=1", "b=1"), newPayload("a/x=1", "a/y=2")},
	{"directory to file", newPayload("a/x=1", "a/y=2"), newPayload("a=1")},
}

// errDead is the panic value of a writer that crashes.
var errDead = errors.New("dead")

// The writer crashes before each of its system calls, and after the last one. A reader then finds the old or the new payload; the
// next write of either succeeds and leaves nothing stale.
func TestCrashAtEachCallIsRecovered(t *testing.T) {
	for _, u := range updates {
		t.Run(u.name, func(t *testing.T) {
			deaths := 0
			for died := true; died; deaths++ {
				for _, next := range []map[string]File{u.new, u.old, newPayload("other=1")} {
					dir := newDirWithPayload(t, u.old)
					died = crashAt(t, dir, u.new, deaths)
					requireOneOf(t, dir, u.old, u.new)
					_, err := Write(dir, next, Options{})
					require.NoError(t, err)
					requireClean(t, dir, next)
				}
			}
			require.Greater(t, deaths, 4)
		})
	}
}

// newDirWithPayload returns a directory with a payload.
func newDirWithPayload(t *testing.T, payload map[string]File) string {
	t.Helper()
	dir := t.TempDir()
	if payload != nil {
		_, err := Write(dir, payload, Options{})
		require.NoError(t, err)
	}
	return dir
}

// crashAt writes a payload and crashes after n calls. died is false if the write has fewer calls.
func crashAt(t *testing.T, dir string, payload map[string]File, n int) (died bool) {
	t.Helper()
	entries, err := parsePayload(payload)
	require.NoError(t, err)
	defer func() {
		if r := recover(); r != nil && r != any(errDead) {
			panic(r)
		}
	}()
	_, err = writePayload(dir, entries, Options{}, func(string) error {
		if n == 0 {
			died = true
			panic(errDead)
		}
		n--
		return nil
	})
	require.NoError(t, err)
	return false
}

// requireOneOf requires that a reader finds one of two payloads. Links may be broken or missing, but must not point to other
// files.
func requireOneOf(t *testing.T, dir string, older, newer map[string]File) {
	t.Helper()
	if _, err := os.Lstat(filepath.Join(dir, dataName)); errors.Is(err, fs.ErrNotExist) {
		require.Nil(t, older)
		require.Empty(t, readThroughLinks(t, dir))
		return
	}
	found := currentFiles(t, dir)
	if !maps.Equal(found, expectedFiles(older)) {
		require.Equal(t, expectedFiles(newer), found)
	}
	for path, content := range readThroughLinks(t, dir) {
		if content != "-> nothing" {
			require.Equal(t, found[path], content, path)
		}
	}
}

// Before the new version is published, the old one stays unchanged and alone; after that the new one is complete.
func TestFailedCallKeepsOldOrNewVersion(t *testing.T) {
	fault := errors.New("fault")
	for _, u := range updates {
		t.Run(u.name, func(t *testing.T) {
			var made []string
			for n := 0; ; n++ {
				dir := newDirWithPayload(t, u.old)
				entries, err := parsePayload(u.new)
				require.NoError(t, err)
				made = made[:0]
				changed, err := writePayload(dir, entries, Options{}, func(call string) error {
					if made = append(made, call); len(made) == n+1 {
						return fault
					}
					return nil
				})
				if err == nil {
					require.Len(t, made, n, "every call was made to fail once")
					break
				}
				require.ErrorIs(t, err, fault)
				require.Equal(t, slices.Contains(made[:n], "renameat"), changed)
				switch {
				case changed:
					require.Equal(t, expectedFiles(u.new), currentFiles(t, dir))
				case u.old != nil:
					requireClean(t, dir, u.old)
				default:
					requireNames(t, dir)
				}
				_, err = Write(dir, u.new, Options{})
				require.NoError(t, err)
				requireClean(t, dir, u.new)
			}
		})
	}
}

func requireNames(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	require.Equal(t, want, names)
}

func TestSetPermsErrorFailsWrite(t *testing.T) {
	old := newPayload("a=1")
	dir := newDirWithPayload(t, old)
	fault := errors.New("fault")
	changed, err := Write(dir, newPayload("a=2"), Options{SetPerms: func(string) error { return fault }})
	require.ErrorIs(t, err, fault)
	require.False(t, changed)
	requireClean(t, dir, old)
}

// FuzzWrite writes a file with any path. It is refused, or found at this path, and no other file is created.
func FuzzWrite(f *testing.F) {
	for _, path := range []string{"a", "a/b", "../a", "..a", "a/..", "./a", "a//b", "/a", "", ".", "a/./b/", "..data", "\xff", "a\x00"} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		top := t.TempDir()
		dir := filepath.Join(top, "volume")
		require.NoError(t, os.Mkdir(dir, 0o755))
		payload := map[string]File{path: {Data: []byte("x"), Mode: 0o600}}
		_, err := Write(dir, payload, Options{})
		requireNames(t, top, "volume")
		if Validate(payload) != nil {
			require.Error(t, err)
			requireNames(t, dir)
			return
		}
		require.NoError(t, err)
		if filepath.IsLocal(path) && len(dir)+len(path) < 4000 {
			data, err := os.ReadFile(filepath.Join(dir, path))
			require.NoError(t, err)
			require.Equal(t, "x", string(data))
		}
		changed, err := Write(dir, payload, Options{})
		require.NoError(t, err)
		require.False(t, changed)
	})
}
