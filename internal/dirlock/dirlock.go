// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package dirlock locks a directory, so that one agent at a time uses it. The kernel holds the lock (flock) and
// releases it when the agent ends, however it ends. The lock keeps out only those that ask for it.
package dirlock

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// wait is how long a lock that is taken is asked for again. A child that a program forked just when it was killed holds
// its lock until the child executes another program, which takes long on a busy machine: where the program that has signed
// has ended, it is that child, and waited for until orphanWait. One that lives in another PID namespace looks as if it had.
const (
	wait       = time.Second
	orphanWait = 15 * time.Second
)

// HeldError says that a directory is locked by another holder.
type HeldError struct {
	Dir string
	PID int // of the holder; 0: it is not known
}

// Error names the holder; whoever asked for the lock names the directory.
func (e *HeldError) Error() string {
	if e.PID == 0 {
		return "another agent has it open"
	}
	return fmt.Sprintf("another agent has it open: process %d", e.PID)
}

// Lock is a lock that is held.
type Lock struct{ file *os.File }

// Take locks a directory that exists, by a file with this name in it, which it makes when needed. Where another holder
// has the lock, in this process too, the error is a [*HeldError].
func Take(dir, name string) (*Lock, error) {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := take(f); err != nil {
		if errors.Is(err, errTaken) {
			err = &HeldError{Dir: dir, PID: holder(f)}
		}
		f.Close()
		return nil, err
	}
	if err := sign(f); err != nil {
		f.Close()
		return nil, err
	}
	return &Lock{file: f}, nil
}

// Held reports whether somebody has such a lock at this moment, in this process or in another one. It does not wait, and where there
// is no such file nobody has it.
func Held(dir, name string) (bool, error) {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close() // that releases it again
	err = try(f)
	if errors.Is(err, errTaken) {
		return true, nil
	}
	return false, err
}

// Release gives the lock back.
func (l *Lock) Release() error { return l.file.Close() }

// errTaken says that somebody else has a lock.
var errTaken = errors.New("taken")

// take locks a file, or returns errTaken when that is not possible in time.
func take(f *os.File) error {
	for begin := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		err := try(f)
		waited := time.Since(begin)
		if !errors.Is(err, errTaken) || waited > orphanWait || waited > wait && !ended(holder(f)) {
			return err
		}
	}
}

// sign writes who has the lock.
func sign(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt(strconv.AppendInt(nil, int64(os.Getpid()), 10), 0)
	return err
}

// holder returns who has signed, or 0.
func holder(f *os.File) int {
	var text [20]byte
	n, _ := f.ReadAt(text[:], 0)
	pid, err := strconv.Atoi(string(text[:n]))
	if err != nil || pid < 0 {
		return 0
	}
	return pid
}
