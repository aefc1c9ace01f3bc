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

// A state directory that belongs to another program by mistake, such as /var/lib with the containers of podman, is not
// cleared.
func TestOpenKeepsForeignFiles(t *testing.T) {
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
	rt := openRuntime(t, root)
	snapshot, err := rt.List(t.Context())
	require.NoError(t, err)
	assert.Empty(t, snapshot.Containers)
	for _, path := range foreign {
		assert.FileExists(t, path)
	}
}

// Files that a program has put into the state directory do not prevent the next agent from opening it.
func TestOpenWithHostileFiles(t *testing.T) {
	root := t.TempDir()
	rt := openRuntime(t, root)
	sandbox, _ := runPodSandbox(t, rt)
	id := startContainer(t, rt, sandbox, shellConfig(`exec sleep 1000`))
	c := shellConfig(`exit 4`)
	c.Name = "ended"
	ended := startContainer(t, rt, sandbox, c)
	awaitExit(t, rt, ended)
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
	go func() { opened <- openRuntime(t, root) }()
	select {
	case rt = <-opened:
	case <-time.After(20 * time.Second):
		require.FailNow(t, "Open does not return")
	}
	assert.EqualValues(t, 4, getContainer(t, rt, ended).ExitCode)
	require.NoError(t, rt.StopContainer(t.Context(), id, 20*time.Second))
	assert.EqualValues(t, 143, getContainer(t, rt, id).ExitCode)
	assert.DirExists(t, "/etc")
	require.NoError(t, rt.RemoveContainer(t.Context(), strings.Repeat("04", 16)))
	left, err := os.ReadDir(filepath.Join(root, "containers"))
	require.NoError(t, err)
	assert.Len(t, left, 2)
}
