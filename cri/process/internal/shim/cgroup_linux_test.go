// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/cri/process/internal/procfs"
)

// A container may have created cgroups below its own, which prevent its removal. Here directories stand for cgroups.
func TestKillAndRemoveCgroupsRemovesDescendants(t *testing.T) {
	root := t.TempDir()
	var dirs []string
	for _, name := range []string{"a", "b", "absent"} {
		dirs = append(dirs, filepath.Join(root, name))
	}
	require.NoError(t, os.MkdirAll(filepath.Join(dirs[0], "x/y/z"), 0o700))
	require.NoError(t, os.MkdirAll(filepath.Join(dirs[0], "x/other"), 0o700))
	require.NoError(t, os.MkdirAll(filepath.Join(dirs[1], strings.Repeat("d/", maxCgroupDepth-1)), 0o700))
	begin := time.Now()
	require.NoError(t, killAndRemoveCgroups(dirs, 2*time.Minute))
	assert.Less(t, time.Since(begin), time.Minute)
	entries, err := os.ReadDir(root)
	require.NoError(t, err)
	assert.Empty(t, entries)

	deep := filepath.Join(root, "deep")
	require.NoError(t, os.MkdirAll(filepath.Join(deep, strings.Repeat("d/", maxCgroupDepth+1)), 0o700))
	require.ErrorIs(t, killAndRemoveCgroups([]string{deep}, 50*time.Millisecond), unix.ENOTEMPTY, "a deeper cgroup stays until the container is removed")
}

// A cgroup that cannot be removed does not delay ReadOutcome.
func TestReadOutcomeDoesNotWaitForCgroups(t *testing.T) {
	dir, stuck := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(stuck, "file"), nil, 0o600)) // a non-empty directory stands for a cgroup with a process
	boot, err := procfs.BootID()
	require.NoError(t, err)
	require.NoError(t, WriteSpec(dir, Spec{Cgroups: []string{stuck}}))
	require.NoError(t, WriteRecord(filepath.Join(dir, runFile), Run{Boot: boot, PID: math.MaxInt32, Start: math.MaxInt64}))
	begin := time.Now()
	exit, err := ReadOutcome(dir, "MARK=x")
	require.NoError(t, err)
	assert.Equal(t, ReasonUnknown, exit.Reason)
	assert.Less(t, time.Since(begin), cgroupTimeout)
}
