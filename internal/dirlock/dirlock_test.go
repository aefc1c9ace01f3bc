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

// It keeps two agents from using one directory, and an operator from not knowing which two.
func TestTheSecondIsToldWhoHasTheDirectory(t *testing.T) {
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
		require.NoError(t, err, "a lock that was released is free")
		require.NoError(t, second.Release())
	})
}

// It keeps a file that somebody else wrote from being read as a holder.
func TestAHolderThatDidNotSignIsUnknown(t *testing.T) {
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

// Who only looks is not kept waiting, and takes nothing.
func TestHeld(t *testing.T) {
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

func TestTakeInNoDirectory(t *testing.T) {
	_, err := dirlock.Acquire(filepath.Join(t.TempDir(), "missing"), "lock")
	require.ErrorIs(t, err, os.ErrNotExist)
}
