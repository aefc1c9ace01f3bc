// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/cri/process"
)

// A state directory that is somebody else's by mistake, as /var/lib with the containers of podman, is not cleared.
func TestForeignFilesStay(t *testing.T) {
	root := t.TempDir()
	var foreign []string
	for _, path := range []string{
		"containers/storage/db.sql", "containers/.cache/x", "sandboxes/" + strings.Repeat("AB", 16) + "/x",
		"containers/" + strings.Repeat("ab", 17) + "/x", "sandboxes/file",
	} {
		path = filepath.Join(root, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte("precious"), 0o600))
		foreign = append(foreign, path)
	}
	rt := open(t, root)
	snapshot, err := rt.List(t.Context())
	require.NoError(t, err)
	assert.Empty(t, snapshot.Containers)
	for _, path := range foreign {
		assert.FileExists(t, path)
	}
}

// Files that a program has put into the state directory do not keep the next agent from opening it.
func TestOpenWithHostileFiles(t *testing.T) {
	root := t.TempDir()
	rt := open(t, root)
	sandbox, _ := pod(t, rt)
	id := start(t, rt, sandbox, shell(`exec sleep 1000`))
	c := shell(`exit 4`)
	c.Name = "ended"
	ended := start(t, rt, sandbox, c)
	exited(t, rt, ended)
	require.NoError(t, rt.Close())

	dir := func(n string) string { return filepath.Join(root, "containers", strings.Repeat(n, 16)) }
	for _, d := range []string{dir("01"), dir("02"), dir("03"), dir("04")} {
		require.NoError(t, os.Mkdir(d, 0o700))
	}
	require.NoError(t, unix.Mkfifo(filepath.Join(dir("01"), "record.json"), 0o600))
	require.NoError(t, os.Symlink("/dev/zero", filepath.Join(dir("02"), "record.json")))
	require.NoError(t, os.Symlink("/etc", filepath.Join(root, "sandboxes", strings.Repeat("05", 16))))
	require.NoError(t, os.WriteFile(filepath.Join(dir("03"), "record.json"), []byte(`{"ID":"../../x"}`), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir("04"), "record.json"), []byte(`{"ID":"`+strings.Repeat("04", 16)+`"}`), 0o600))
	require.NoError(t, unix.Mkfifo(filepath.Join(dir("04"), "lock"), 0o600))

	opened := make(chan *process.Runtime, 1)
	go func() { opened <- open(t, root) }()
	select {
	case rt = <-opened:
	case <-time.After(20 * time.Second):
		require.FailNow(t, "Open does not return")
	}
	assert.EqualValues(t, 4, get(t, rt, ended).ExitCode)
	require.NoError(t, rt.StopContainer(t.Context(), id, 20*time.Second))
	assert.EqualValues(t, 143, get(t, rt, id).ExitCode)
	assert.DirExists(t, "/etc")
	require.NoError(t, rt.RemoveContainer(t.Context(), strings.Repeat("04", 16)))
	left, err := os.ReadDir(filepath.Join(root, "containers"))
	require.NoError(t, err)
	assert.Len(t, left, 2)
}
