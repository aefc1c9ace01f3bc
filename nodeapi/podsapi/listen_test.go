// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podsapi_test

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/nodeapi/podsapi"
)

func TestListenReplacesUnusedSocket(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pods-api")
	path := filepath.Join(dir, "pods-api.sock")
	first, err := podsapi.Listen(path)
	require.NoError(t, err)
	info, err := os.Lstat(path)
	require.NoError(t, err)
	assert.Equal(t, fs.ModeSocket|0o600, info.Mode())
	assert.Equal(t, path, first.Addr().String())
	_, err = podsapi.Listen(path)
	require.ErrorContains(t, err, "listen on socket "+path+": another process listens on it")

	// A killed process leaves its socket behind.
	first.(interface{ SetUnlinkOnClose(unlink bool) }).SetUnlinkOnClose(false)
	require.NoError(t, os.Rename(path, path+".moved"))
	require.NoError(t, first.Close())
	require.NoError(t, os.Rename(path+".moved", path))
	second, err := podsapi.Listen(path)
	require.NoError(t, err)
	c, err := net.Dial("unix", path)
	require.NoError(t, err)
	require.NoError(t, c.Close())

	// Closing a listener does not remove the socket of another listener.
	require.NoError(t, os.Remove(path))
	third, err := podsapi.Listen(path)
	require.NoError(t, err)
	require.NoError(t, second.Close())
	_, err = os.Lstat(path)
	require.NoError(t, err)
	require.NoError(t, third.Close())
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}

// Only sockets are replaced, and no symbolic link is followed.
func TestListenRefusesOtherFiles(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.WriteFile(at("file"), []byte("precious"), 0o600))
	require.NoError(t, os.Mkdir(at("dir"), 0o700))
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: at("dead"), Net: "unix"})
	require.NoError(t, err)
	l.SetUnlinkOnClose(false)
	require.NoError(t, l.Close())
	require.NoError(t, os.Symlink(at("dead"), at("link")))
	require.NoError(t, os.Symlink(at("none"), at("dangling")))
	for path, want := range map[string]string{
		at("file"): "no socket: -rw", at("dir"): "no socket: d", at("link"): "no socket: L", at("dangling"): "no socket: L",
		at("file/s"): "not a directory", at(strings.Repeat("x", 200) + "/s"): "invalid argument",
	} {
		_, err := podsapi.Listen(path)
		assert.ErrorContains(t, err, want, path)
		assert.ErrorContains(t, err, path)
	}
	data, err := os.ReadFile(at("file"))
	require.NoError(t, err)
	assert.Equal(t, "precious", string(data))
	to, err := os.Readlink(at("link"))
	require.NoError(t, err)
	assert.Equal(t, at("dead"), to)
}
