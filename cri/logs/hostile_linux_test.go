// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package logs_test

import (
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri/logs"
)

// A container with the log directory mounted can replace a log by a named pipe. Read does not block on it.
func TestReadDoesNotBlockOnNamedPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	err := logs.Read(t.Context(), path, io.Discard, io.Discard, logs.ReadOptions{})
	require.ErrorContains(t, err, "it is no regular file")

	path = writeLog(t, filepath.Join(t.TempDir(), "0.log"), sample...)
	require.NoError(t, syscall.Mkfifo(path+".20161020-183921", 0o600))
	err = logs.Read(t.Context(), path, io.Discard, io.Discard, logs.ReadOptions{IncludeRotated: true})
	require.ErrorContains(t, err, "it is no regular file")
}

// Compression writes beside the log under a predictable name. A symbolic link with this name could lead to any file of the
// host.
func TestCompressionDoesNotFollowSymlinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		secret := writeLog(t, filepath.Join(t.TempDir(), "crontab"), "of the host\n")
		n := startNode(t, logs.Policy{MaxSize: 1000, MaxFiles: 5}, "a")
		c := n.containers["a"]
		writeLog(t, c.path+".19991231-000001", "1")
		writeLog(t, c.path+".19991231-000002", "2")
		require.NoError(t, os.Symlink(secret, c.path+".19991231-000001.tmp"))
		advanceTime(2 * time.Second)
		assert.Equal(t, "0.log=0 0.log.19991231-000001.gz 0.log.19991231-000002=1", listFiles(t, c))
		data, err := os.ReadFile(secret)
		require.NoError(t, err)
		assert.Equal(t, "of the host\n", string(data))
		info, err := os.Lstat(c.path + ".19991231-000001.gz")
		require.NoError(t, err)
		assert.True(t, info.Mode().IsRegular())
	})
}
