// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletconfig_test

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/agent/kubeletconfig"
)

// A file that is no regular file, such as a FIFO without a writer, is refused and not waited for.
func TestLoadRefusesSpecialFiles(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	_, err := kubeletconfig.Load(fifo)
	require.EqualError(t, err, fifo+": is no regular file")
	_, err = kubeletconfig.Load(filepath.Dir(fifo))
	require.EqualError(t, err, filepath.Dir(fifo)+": is no regular file")
	_, err = kubeletconfig.Load(fifo + "x")
	require.EqualError(t, err, fifo+"x: no such file or directory")
}
