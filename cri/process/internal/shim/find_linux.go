// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/cri/process/internal/procfs"
)

// Find returns the shim of a directory, or nil when none lives. A shim that is about to start its process is
// waited for until the deadline.
func Find(dir string, deadline time.Time) (*Handle, error) {
	for {
		handle, err := look(dir)
		if handle != nil || err == nil {
			return handle, err
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("find shim of %s: %w", dir, err)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// look is Find without a wait.
func look(dir string) (*Handle, error) {
	if lives, err := locked(dir); err != nil || !lives {
		return nil, err
	}
	run, err := ReadRun(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("it lives but has not started its process")
	}
	if err != nil {
		return nil, err
	}
	return open(dir, run.Shim)
}

// open returns a handle on the process that is the shim of a directory. A lock that is still held says that the shim
// lives, so the descriptor is not that of a later process.
func open(dir string, pid int) (*Handle, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, os.NewSyscallError("pidfd_open", err)
	}
	lives, err := locked(dir)
	if err == nil && lives {
		return newHandle(dir, pid, fd), nil
	}
	unix.Close(fd)
	if err == nil {
		err = errors.New("it has just ended")
	}
	return nil, err
}

// Search returns the shim of a directory by the arguments that it was started with, among all processes of the machine.
// It finds one that has not said which process it is, as when it hangs before that.
func Search(dir string) (*Handle, error) {
	lives, err := locked(dir)
	if err == nil && !lives {
		err = errors.New("none lives")
	}
	if err != nil {
		return nil, fmt.Errorf("search shim of %s: %w", dir, err)
	}
	all, err := procfs.All()
	if err != nil {
		return nil, fmt.Errorf("search shim of %s: %w", dir, err)
	}
	for _, p := range all {
		if p.Zombie || !procfs.HasArgs(p.PID, Name, dir) {
			continue
		}
		handle, err := open(dir, p.PID)
		// The arguments are read again: only now is it certain whose they are.
		if err == nil && procfs.HasArgs(p.PID, Name, dir) {
			return handle, nil
		}
		if err == nil {
			handle.Close()
		}
	}
	return nil, fmt.Errorf("search shim of %s: it lives, but no process has its name", dir)
}

// locked reports whether a shim lives. Its lock is a regular file in a directory.
func locked(dir string) (bool, error) {
	lock, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer lock.Close()
	switch err := unix.Flock(int(lock.Fd()), unix.LOCK_SH|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return true, nil
	case err != nil:
		return false, os.NewSyscallError("flock", err)
	}
	return false, nil
}
