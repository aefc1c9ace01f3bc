// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package shim

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// After a power failure right after the exit of a container, a completed job must not run again: the exit record is on disk,
// under its name, in a directory that exists and whose other records are complete.
func TestExitSurvivesPowerLoss(t *testing.T) {
	containers := t.TempDir()
	dir := filepath.Join(containers, "id")
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.NoError(t, WriteRecord(filepath.Join(dir, "record.json"), "a container"))
	require.NoError(t, WriteRecord(filepath.Join(dir, runFile), Run{PID: 7}))

	var synced []string
	named := false // whether the exit record already had its name when the directory was synced
	require.NoError(t, writeExitSynced(dir, Exit{Code: 3}, func(f *os.File) error {
		synced = append(synced, f.Name())
		if f.Name() == dir {
			_, err := os.Stat(filepath.Join(dir, exitFile))
			named = err == nil
		}
		return f.Sync()
	}))
	assert.Equal(t, filepath.Join(dir, exitFile+".tmp"), synced[0], "the content is synced before the name")
	assert.ElementsMatch(t, []string{
		filepath.Join(dir, exitFile+".tmp"), filepath.Join(dir, "record.json"), filepath.Join(dir, runFile), dir, containers,
	}, synced)
	assert.True(t, named)

	broken := errors.New("the disk is broken")
	err := writeExitSynced(dir, Exit{Code: 3}, func(f *os.File) error {
		if f.Name() == dir {
			return broken
		}
		return nil
	})
	assert.ErrorIs(t, err, broken)
}

// A file that a program put in place of a record neither blocks the agent nor fills its memory.
func TestReadRecordDoesNotBlockOnHostileFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "record.json")
	read := func() error {
		done := make(chan error, 1)
		go func() {
			_, err := ReadRecord[Exit](path)
			done <- err
		}()
		select {
		case err := <-done:
			return err
		case <-time.After(10 * time.Second):
			t.Fatal("ReadRecord does not return")
			return nil
		}
	}
	for name, put := range map[string]func() error{
		"FIFO":      func() error { return unix.Mkfifo(path, 0o600) },
		"device":    func() error { return os.Symlink("/dev/zero", path) },
		"directory": func() error { return os.Mkdir(path, 0o700) },
		"large": func() error {
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<40)) // a sparse file of 1 TiB
		},
	} {
		require.NoError(t, put(), name)
		err := read()
		assert.ErrorContains(t, err, path, name)
		assert.False(t, IsReadFailure(err), "%s: %v", name, err)
		require.NoError(t, os.RemoveAll(path))
	}
	assert.ErrorIs(t, read(), os.ErrNotExist)
}

// While a record cannot be read for lack of descriptors, the outcome is unknown, and must not be recorded as killed.
func TestReadOutcomeDuringDescriptorShortage(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, WriteRecord(filepath.Join(dir, runFile), Run{Boot: "an earlier boot"}))
	require.NoError(t, writeExit(dir, Exit{Code: 3}))
	good := filepath.Join(dir, exitFile)
	require.NoError(t, os.Rename(good, good+".good"))
	require.NoError(t, os.Symlink(exitFile, good)) // a link to itself: only this record cannot be read
	_, err := ReadOutcome(dir, "MARK=x")
	require.ErrorIs(t, err, unix.ELOOP)
	require.NoError(t, os.Rename(good+".good", good))

	var before unix.Rlimit
	require.NoError(t, unix.Prlimit(0, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1, Max: limitMax(t)}, &before))
	_, err = ReadOutcome(dir, "MARK=x")
	require.NoError(t, unix.Prlimit(0, unix.RLIMIT_NOFILE, &before, nil))
	require.ErrorIs(t, err, unix.EMFILE)
	assert.True(t, IsReadFailure(err))

	exit, err := ReadOutcome(dir, "MARK=x")
	require.NoError(t, err)
	assert.EqualValues(t, 3, exit.Code)
}

func limitMax(t *testing.T) uint64 {
	t.Helper()
	var now unix.Rlimit
	require.NoError(t, unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &now))
	return now.Max
}
