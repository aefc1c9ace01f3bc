// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package atomicfile_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/atomicfile"
)

// listNames returns the names of all entries of the directory dir.
func listNames(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	all := []string{}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state")
	for i, content := range []string{"first", "a longer second one", "", "x", "and once more"} {
		write := []func(string, []byte, os.FileMode) error{atomicfile.WriteFile, atomicfile.Replace}[i%2]
		require.NoError(t, write(path, []byte(content), 0o640))
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, content, string(got))
		assert.Equal(t, []string{"state"}, listNames(t, dir), "WriteFile leaves no other file in the directory")
	}
}

func TestWriteFileSetsTheMode(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no such file modes")
	}
	path := filepath.Join(t.TempDir(), "state")
	for _, perm := range []os.FileMode{0o600, 0o666, 0o400, 0o644} {
		require.NoError(t, atomicfile.WriteFile(path, nil, perm))
		info, err := os.Stat(path)
		require.NoError(t, err)
		assert.Equal(t, perm, info.Mode(), "the mode of the new file is independent of the umask and of the old file")
	}
}

func TestWriteFileInTheWorkingDirectory(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	require.NoError(t, atomicfile.WriteFile("state", []byte("x"), 0o600))
	assert.Equal(t, []string{"state"}, listNames(t, dir))
	require.NoError(t, os.WriteFile(".state.1.tmp", nil, 0o600))
	require.NoError(t, atomicfile.Clean("state"))
	assert.Equal(t, []string{"state"}, listNames(t, dir))
}

func TestWriteFileRejectsIrregularFiles(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "directory"), 0o700))
	require.NoError(t, os.Symlink("elsewhere", filepath.Join(dir, "link")))
	before := listNames(t, dir)
	for name, cause := range map[string]string{
		"directory":                "it is no regular file",
		"link":                     "it is no regular file",
		"missing/name":             "no such file or directory",
		strings.Repeat("long", 64): "name too long",
	} {
		path := filepath.Join(dir, name)
		err := atomicfile.WriteFile(path, []byte("x"), 0o600)
		require.ErrorContains(t, err, "replace "+path+": ")
		require.ErrorContains(t, err, cause)
		assert.Equal(t, before, listNames(t, dir))
	}
}

// Concurrent writers do not disturb each other, and readers see the content of one of them.
func TestConcurrentWriters(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state")
	require.NoError(t, atomicfile.WriteFile(path, content(0), 0o600))
	var writers, readers sync.WaitGroup
	done := make(chan struct{})
	for w := range 4 {
		writers.Go(func() {
			for i := range 10 {
				assert.NoError(t, atomicfile.WriteFile(path, content(10*w+i), 0o600))
			}
		})
	}
	readers.Go(func() {
		for {
			readVersion(t, path)
			select {
			case <-done:
				return
			default:
			}
		}
	})
	writers.Wait()
	close(done)
	readers.Wait()
	assert.Equal(t, []string{"state"}, listNames(t, dir))
}

func TestCleanRemovesTemporaryFilesOfKilledWriters(t *testing.T) {
	dir := t.TempDir()
	others := []string{".pods.backup.7.tmp", ".pods..tmp", ".pods.7", ".pods.7a.tmp", ".tmp", "pods", "pods.7.tmp"}
	for _, name := range append(others, ".pods.7.tmp", ".pods.123456.tmp") {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	require.NoError(t, atomicfile.Clean(filepath.Join(dir, "pods")))
	assert.ElementsMatch(t, others, listNames(t, dir))
	require.NoError(t, atomicfile.Clean(filepath.Join(dir, "missing", "pods")))
}

// content returns the content of version n of a file. Its first line is n, the other lines repeat n, and its length depends on n.
func content(n int) []byte {
	line := strconv.Itoa(n) + "\n"
	return []byte(strings.Repeat(line, 20_000+n%7*5_000))
}

// readVersion reads a file that has the result of content, and returns its number n. It fails the test unless the file is
// complete.
func readVersion(t *testing.T, path string) int {
	t.Helper()
	data, err := os.ReadFile(path)
	if !assert.NoError(t, err) {
		return -1
	}
	first, _, _ := strings.Cut(string(data), "\n")
	n, err := strconv.Atoi(first)
	assert.NoError(t, err)
	assert.True(t, string(content(n)) == string(data), "the file has a complete version")
	return n
}
