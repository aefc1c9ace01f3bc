// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package dirent

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestNext(t *testing.T) {
	dir := t.TempDir()
	want := map[string]Type{"dir": Directory, "link": Link}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "dir"), 0o755))
	require.NoError(t, os.Symlink("dir", filepath.Join(dir, "link")))
	for i := range 1000 {
		name := fmt.Sprintf("..a file whose name is not short %d", i)
		want[name] = Regular
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	got, blocks := map[string]Type{}, 0
	for used := 1; used > 0; blocks++ {
		used, err = Next(fd, make([]byte, 4096), func(name []byte, typ Type) { got[string(name)] = typ })
		require.NoError(t, err)
		require.LessOrEqual(t, used, 4096)
	}
	for name, typ := range got {
		if typ == Unknown { // file systems may report no types
			got[name] = want[name]
		}
	}
	require.Equal(t, want, got)
	require.Greater(t, blocks, 2)

	_, err = Next(-1, make([]byte, 4096), nil)
	require.ErrorIs(t, err, unix.EBADF)
}

// The records come from the kernel, which may be the kernel of a sandbox such as gVisor.
func FuzzParse(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 24, 0, 8, 'a', 0, 0, 0, 0})
	f.Add(make([]byte, 24))
	f.Fuzz(func(t *testing.T, records []byte) {
		total := 0
		err := parseRecords(records, func(name []byte, _ Type) { total += nameAt + len(name) })
		if err == nil && total > len(records) {
			t.Fatalf("%d bytes out of %d", total, len(records))
		}
	})
}
