// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plainfile_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/internal/plainfile"
)

// Other kinds of files in place of a regular file are neither followed nor waited for.
func TestReadRejectsIrregularFiles(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.WriteFile(path("file"), []byte("12345"), 0o600))
	data, err := plainfile.Read(path("file"), 5)
	require.NoError(t, err)
	require.Equal(t, "12345", string(data))
	_, err = plainfile.Read(path("file"), 4)
	require.ErrorIs(t, err, plainfile.ErrTooLarge)
	require.EqualError(t, err, "read "+path("file")+": it is too large: more than 4 bytes")
	_, err = plainfile.Read(path("none"), 5)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.EqualError(t, err, "read "+path("none")+": no such file or directory")

	require.NoError(t, os.Symlink("file", path("link")))
	require.NoError(t, unix.Mkfifo(path("pipe"), 0o600))
	require.NoError(t, os.Mkdir(path("dir"), 0o700))
	for _, name := range []string{"link", "pipe", "dir"} {
		_, err := plainfile.Read(path(name), 5)
		require.ErrorIs(t, err, plainfile.ErrIrregular)
		require.ErrorContains(t, err, path(name))
	}
}
