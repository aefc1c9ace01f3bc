// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package dirlock_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/dirlock"
)

// The second agent gets an error with the process ID of the first.
func TestAcquireReportsHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		first, err := dirlock.Acquire(dir, "lock")
		require.NoError(t, err)
		_, err = dirlock.Acquire(dir, "lock")
		var held *dirlock.LockedError
		require.ErrorAs(t, err, &held)
		assert.Equal(t, dirlock.LockedError{Dir: dir, PID: os.Getpid()}, *held)
		assert.EqualError(t, err, fmt.Sprintf("another agent has it open: process %d", os.Getpid()))
		require.NoError(t, first.Release())
		second, err := dirlock.Acquire(dir, "lock")
		require.NoError(t, err, "a released lock can be acquired")
		require.NoError(t, second.Release())
	})
}

// Invalid content of the lock file is not reported as a process ID.
func TestAcquireIgnoresInvalidHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		first, err := dirlock.Acquire(dir, "lock")
		require.NoError(t, err)
		for _, text := range []string{"", "-1", "x", "99999999999999999999999999"} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "lock"), []byte(text), 0o600))
			_, err = dirlock.Acquire(dir, "lock")
			assert.EqualError(t, err, "another agent has it open")
		}
		require.NoError(t, first.Release())
	})
}

// IsLocked does not wait and does not keep the lock.
func TestIsLocked(t *testing.T) {
	dir := t.TempDir()
	for _, want := range []bool{false, true, false} {
		var lock *dirlock.Lock
		var err error
		if want {
			lock, err = dirlock.Acquire(dir, "lock")
			require.NoError(t, err)
		}
		held, err := dirlock.IsLocked(dir, "lock")
		require.NoError(t, err)
		require.Equal(t, want, held)
		if want {
			require.NoError(t, lock.Release())
		}
	}
	_, err := dirlock.IsLocked(string([]byte{0}), "lock")
	require.Error(t, err)
}

func TestAcquireFailsInMissingDirectory(t *testing.T) {
	_, err := dirlock.Acquire(filepath.Join(t.TempDir(), "missing"), "lock")
	require.ErrorIs(t, err, os.ErrNotExist)
}
