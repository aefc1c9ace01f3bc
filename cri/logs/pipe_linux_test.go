// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package logs_test

import (
	"io"
	"path/filepath"
	"syscall"
	"testing"

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
	err = logs.Read(t.Context(), path, io.Discard, io.Discard, logs.ReadOptions{Rotated: true})
	require.ErrorContains(t, err, "it is no regular file")
}
