// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package dirlock locks a directory, so that only one agent uses it at a time. The kernel releases the lock (flock) when the
// agent exits. Programs that do not call this package are not kept out.
package dirlock

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Timeouts of Acquire. retryTimeout applies while the process whose ID is in the lock file exists, and orphanTimeout otherwise.
// In the second case a child process can hold the lock: it was forked just before its parent was killed, and keeps the lock until
// it executes another program. A process in another PID namespace seems not to exist either.
const (
	retryTimeout  = time.Second
	orphanTimeout = 15 * time.Second
)

// LockedError is the error of [Acquire] if another agent has locked the directory.
type LockedError struct {
	Dir string
	PID int // ID of the process with the lock; 0: unknown
}

// Error returns a text with the ID of the process that has the lock, if known. The text does not contain the directory.
func (e *LockedError) Error() string {
	if e.PID == 0 {
		return "another agent has it open"
	}
	return fmt.Sprintf("another agent has it open: process %d", e.PID)
}

// Lock is the lock of a directory. The kernel releases it when the process exits.
type Lock struct{ file *os.File }

// Acquire locks the existing directory dir through a lock file with this name, which it creates if necessary. It waits
// briefly for a locked directory. If it stays locked, even by this process, the error is a [*LockedError].
func Acquire(dir, name string) (*Lock, error) {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := acquireInTime(f); err != nil {
		if errors.Is(err, errLocked) {
			err = &LockedError{Dir: dir, PID: readPID(f)}
		}
		f.Close()
		return nil, err
	}
	if err := writePID(f); err != nil {
		f.Close()
		return nil, err
	}
	return &Lock{file: f}, nil
}

// IsLocked reports whether a process has locked the directory dir by calling [Acquire] with the same file name. It does not
// wait. If the lock file does not exist, it returns false.
func IsLocked(dir, name string) (bool, error) {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close() // closing releases the lock
	err = tryLock(f)
	if errors.Is(err, errLocked) {
		return true, nil
	}
	return false, err
}

// Release unlocks the directory, so that another agent can lock it.
func (l *Lock) Release() error { return l.file.Close() }

// errLocked is the error of tryLock if another process has locked the file.
var errLocked = errors.New("taken")

// acquireInTime locks the file. If it stays locked, it returns errLocked.
func acquireInTime(file *os.File) error {
	for begin := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		err := tryLock(file)
		waited := time.Since(begin)
		// A child of an exited process may keep the lock for a moment.
		if !errors.Is(err, errLocked) || waited > orphanTimeout || waited > retryTimeout && !hasExited(readPID(file)) {
			return err
		}
	}
}

// writePID writes the ID of this process, which has the lock, to the lock file f.
func writePID(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt(strconv.AppendInt(nil, int64(os.Getpid()), 10), 0)
	return err
}

// readPID returns the process ID in the lock file f, or 0 if it has none.
func readPID(f *os.File) int {
	var text [20]byte
	n, _ := f.ReadAt(text[:], 0)
	pid, err := strconv.Atoi(string(text[:n]))
	if err != nil || pid < 0 {
		return 0
	}
	return pid
}
