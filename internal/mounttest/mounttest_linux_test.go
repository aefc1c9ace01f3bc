// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package mounttest_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/internal/mounttest"
)

func TestMain(m *testing.M) { mounttest.Main(m) }

// Mounts of the tests are invisible to other processes.
func TestMountsInvisibleToOtherProcesses(t *testing.T) {
	mounttest.Need(t)
	dir := t.TempDir()
	require.NoError(t, unix.Mount("tmpfs", dir, "tmpfs", 0, ""))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, 0)) })
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mine"), nil, 0o600))
	outside := filepath.Join("/proc", "1", "root", dir)
	if _, err := os.Stat("/proc/1/root"); err == nil && os.Getppid() != 1 {
		require.NoFileExists(t, filepath.Join(outside, "mine"))
	}
}

func TestDeadFUSE(t *testing.T) {
	mounttest.Need(t)
	dir := t.TempDir()
	abort := mounttest.DeadFUSE(t, dir)
	var err error
	returned := mounttest.Blocked(t, func() { _, err = os.ReadDir(dir) })
	select {
	case <-returned:
		t.Fatal("answered: ", err)
	default:
	}
	abort()
	<-returned
	require.Error(t, err)
}
