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
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// updates are pairs of payloads, an older and a newer one.
var updates = []struct {
	name     string
	old, new map[string]File
}{
	{"first", nil, files("a=1", "dir/b=2")},
	{"content", files("a=1", "b=1"), files("a=2", "b=2")},
	{"more", files("a=1"), files("a=1", "b=2", "dir/c=3", "dir/deep/d=4")},
	{"less", files("a=1", "b=2", "dir/c=3"), files("a=1")},
	{"none", files("a=1", "dir/c=3"), files()},
	{"file to directory", files("a=1", "b=1"), files("a/x=1", "a/y=2")},
	{"directory to file", files("a/x=1", "a/y=2"), files("a=1")},
}

// errDead is the panic of a writer that dies.
var errDead = errors.New("dead")

// TestDeath lets the writer die before each of its system calls, and after the last. A reader then finds the old payload
// or the new one; the next write, of either, succeeds and leaves nothing behind.
func TestDeath(t *testing.T) {
	for _, u := range updates {
		t.Run(u.name, func(t *testing.T) {
			deaths := 0
			for died := true; died; deaths++ {
				for _, next := range []map[string]File{u.new, u.old, files("other=1")} {
					dir := prepared(t, u.old)
					died = dieAt(t, dir, u.new, deaths)
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

// prepared returns a directory with a payload.
func prepared(t *testing.T, payload map[string]File) string {
	t.Helper()
	dir := t.TempDir()
	if payload != nil {
		_, err := Write(dir, payload, Options{})
		require.NoError(t, err)
	}
	return dir
}

// dieAt writes a payload and dies after n calls, if there are more. It reports whether there were.
func dieAt(t *testing.T, dir string, payload map[string]File, n int) (died bool) {
	t.Helper()
	entries, err := parse(payload)
	require.NoError(t, err)
	defer func() {
		if r := recover(); r != nil && r != any(errDead) {
			panic(r)
		}
	}()
	_, err = write(dir, entries, Options{}, func(string) error {
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

// requireOneOf requires that a reader finds one of two payloads. A link may lead nowhere, and one may be missing, but none
// leads to what is not of the payload.
func requireOneOf(t *testing.T, dir string, older, newer map[string]File) {
	t.Helper()
	if _, err := os.Lstat(filepath.Join(dir, dataName)); errors.Is(err, fs.ErrNotExist) {
		require.Nil(t, older)
		require.Empty(t, view(t, dir))
		return
	}
	found := current(t, dir)
	if !maps.Equal(found, want(older)) {
		require.Equal(t, want(newer), found)
	}
	for path, content := range view(t, dir) {
		if content != "-> nothing" {
			require.Equal(t, found[path], content, path)
		}
	}
}

// TestFailures fails each system call once. Until the new version is published the old one stays as it was, with nothing
// beside it; after that the new one is there.
func TestFailures(t *testing.T) {
	fault := errors.New("fault")
	for _, u := range updates {
		t.Run(u.name, func(t *testing.T) {
			var made []string
			for n := 0; ; n++ {
				dir := prepared(t, u.old)
				entries, err := parse(u.new)
				require.NoError(t, err)
				made = made[:0]
				changed, err := write(dir, entries, Options{}, func(call string) error {
					if made = append(made, call); len(made) == n+1 {
						return fault
					}
					return nil
				})
				if err == nil {
					require.Len(t, made, n, "all calls have failed once")
					break
				}
				require.ErrorIs(t, err, fault)
				require.Equal(t, slices.Contains(made[:n], "renameat"), changed)
				switch {
				case changed:
					require.Equal(t, want(u.new), current(t, dir))
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

func TestSetPermsFails(t *testing.T) {
	old := files("a=1")
	dir := prepared(t, old)
	fault := errors.New("fault")
	changed, err := Write(dir, files("a=2"), Options{SetPerms: func(string) error { return fault }})
	require.ErrorIs(t, err, fault)
	require.False(t, changed)
	requireClean(t, dir, old)
}

// TestDebris begins with what a crash, the kubelet's included, or a container that may write has made of the directory.
func TestDebris(t *testing.T) {
	const stale = "..2020_01_02_03_04_05.1"
	for _, test := range []struct {
		name string
		make func(t *testing.T, dir, outside string)
	}{
		{"next link", func(t *testing.T, dir, _ string) { symlink(t, stale, dir, nextName) }},
		{"next link out", func(t *testing.T, dir, outside string) { symlink(t, outside, dir, nextName) }},
		{"next directory", func(t *testing.T, dir, _ string) { put(t, dir, nextName+"/x") }},
		{"next file", func(t *testing.T, dir, _ string) { put(t, dir, nextName) }},
		{"stale version", func(t *testing.T, dir, _ string) { put(t, dir, stale+"/secret/deep") }},
		{"stale version is a link", func(t *testing.T, dir, outside string) { symlink(t, outside, dir, stale) }},
		{"link in a stale version", func(t *testing.T, dir, outside string) {
			put(t, dir, stale+"/x")
			symlink(t, outside, dir, stale+"/out")
		}},
		{"link to a file that is no more", func(t *testing.T, dir, _ string) { symlink(t, dataName+"/gone", dir, "gone") }},
		{"data leads out", func(t *testing.T, dir, outside string) { relink(t, outside, dir) }},
		{"data leads up", func(t *testing.T, dir, _ string) { relink(t, "../outside", dir) }},
		{"data leads to itself", func(t *testing.T, dir, _ string) { relink(t, dataName, dir) }},
		{"data leads nowhere", func(t *testing.T, dir, _ string) { relink(t, stale, dir) }},
		{"data leads to a link", func(t *testing.T, dir, outside string) {
			symlink(t, outside, dir, stale)
			relink(t, stale, dir)
		}},
		{"data is a directory", func(t *testing.T, dir, _ string) {
			require.NoError(t, os.Remove(filepath.Join(dir, dataName)))
			put(t, dir, dataName+"/a")
		}},
		{"data is a file", func(t *testing.T, dir, _ string) {
			require.NoError(t, os.Remove(filepath.Join(dir, dataName)))
			put(t, dir, dataName)
		}},
		{"a file is a link to the same content", func(t *testing.T, dir, outside string) { replace(t, outside+"/same", dir) }},
		{"a file is a pipe", func(t *testing.T, dir, _ string) {
			require.NoError(t, os.Remove(filepath.Join(dir, dataName, "a")))
			require.NoError(t, unix.Mkfifo(filepath.Join(dir, dataName, "a"), 0o644))
		}},
		{"a file is a directory", func(t *testing.T, dir, _ string) {
			require.NoError(t, os.Remove(filepath.Join(dir, dataName, "a")))
			put(t, dir, dataName+"/a/deep")
		}},
		{"a file is too many", func(t *testing.T, dir, _ string) { put(t, dir, dataName+"/more") }},
		{"a file is missing", func(t *testing.T, dir, _ string) { require.NoError(t, os.Remove(filepath.Join(dir, dataName, "a"))) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			top := t.TempDir()
			dir, outside := filepath.Join(top, "volume"), filepath.Join(top, "outside")
			require.NoError(t, os.Mkdir(dir, 0o755))
			put(t, outside, "kept")
			require.NoError(t, os.WriteFile(filepath.Join(outside, "same"), []byte("1"), 0o644))
			payload := files("a=1", "dir/b=2")
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

// relink lets the link to the current version lead elsewhere. The version itself becomes debris.
func relink(t *testing.T, target, dir string) {
	t.Helper()
	require.NoError(t, os.Remove(filepath.Join(dir, dataName)))
	symlink(t, target, dir, dataName)
}

// replace replaces a file of the current version by a link.
func replace(t *testing.T, target, dir string) {
	t.Helper()
	require.NoError(t, os.Remove(filepath.Join(dir, dataName, "a")))
	symlink(t, target, dir, dataName+"/a")
}

func put(t *testing.T, dir, name string) {
	t.Helper()
	path := filepath.Join(dir, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte("secret"), 0o600))
}

// More debris than one write looks after goes in several.
func TestMuchDebris(t *testing.T) {
	dir := prepared(t, files("a=1"))
	for i := range maxStale + 10 {
		put(t, dir, "..2020_01_02_03_04_05."+strconv.Itoa(i))
		symlink(t, dataName+"/"+strconv.Itoa(i), dir, strconv.Itoa(i))
	}
	for range 2 {
		changed, err := Write(dir, files("a=1"), Options{})
		require.NoError(t, err)
		require.False(t, changed)
	}
	requireClean(t, dir, files("a=1"))
}

// Links and directories that are not the writer's are left alone: those of a container, and mount points of other volumes.
func TestOthersStay(t *testing.T) {
	dir := prepared(t, files("a=1", "b=2"))
	symlink(t, "..data/elsewhere", dir, "link")
	symlink(t, "/etc", dir, "absolute")
	put(t, dir, "nested/mount")
	_, err := Write(dir, files("a=2"), Options{})
	require.NoError(t, err)
	version, err := os.Readlink(filepath.Join(dir, dataName))
	require.NoError(t, err)
	requireNames(t, dir, version, dataName, "a", "absolute", "link", "nested")
}

// FuzzWrite writes a file with any path. Either it is refused, or it is found where the path says, and nothing is anywhere
// else.
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
