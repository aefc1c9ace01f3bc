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

// A container that ships the logs of a node can put anything in the place of one. Nobody waits until it writes to a pipe.
func TestReadDoesNotWaitForPipes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	err := logs.Read(t.Context(), path, io.Discard, io.Discard, logs.ReadOptions{})
	require.ErrorContains(t, err, "it is no regular file")

	path = save(t, filepath.Join(t.TempDir(), "0.log"), sample...)
	require.NoError(t, syscall.Mkfifo(path+".20161020-183921", 0o600))
	err = logs.Read(t.Context(), path, io.Discard, io.Discard, logs.ReadOptions{IncludeRotated: true})
	require.ErrorContains(t, err, "it is no regular file")
}

// What is compressed is written beside the log under a name that anybody can guess. A link that waits there leads to a file of
// the host.
func TestCompressionFollowsNoLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		secret := save(t, filepath.Join(t.TempDir(), "crontab"), "of the host\n")
		n := start(t, logs.Policy{MaxSize: 1000, MaxFiles: 5}, "a")
		c := n.containers["a"]
		save(t, c.path+".19991231-000001", "1")
		save(t, c.path+".19991231-000002", "2")
		require.NoError(t, os.Symlink(secret, c.path+".19991231-000001.tmp"))
		pass(2 * time.Second)
		assert.Equal(t, "0.log=0 0.log.19991231-000001.gz 0.log.19991231-000002=1", ls(t, c))
		data, err := os.ReadFile(secret)
		require.NoError(t, err)
		assert.Equal(t, "of the host\n", string(data))
		info, err := os.Lstat(c.path + ".19991231-000001.gz")
		require.NoError(t, err)
		assert.True(t, info.Mode().IsRegular())
	})
}
