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

// FindShim returns the running shim of the container with directory dir, or nil if no shim runs. If the shim has not started
// its process yet, FindShim waits. It returns an error at the deadline.
func FindShim(dir string, deadline time.Time) (*Handle, error) {
	for {
		handle, err := tryFind(dir)
		if handle != nil || err == nil {
			return handle, err
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("find shim of %s: %w", dir, err)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// tryFind is like FindShim but does not wait. If the shim has not started its process yet, it returns an error.
func tryFind(dir string) (*Handle, error) {
	if lives, err := isLocked(dir); err != nil || !lives {
		return nil, err
	}
	run, err := ReadRun(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("it lives but has not started its process")
	}
	if err != nil {
		return nil, err
	}
	return openHandle(dir, run.Shim)
}

// openHandle returns a handle of the shim with this PID. It returns an error if the shim has exited.
func openHandle(dir string, pid int) (*Handle, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, os.NewSyscallError("pidfd_open", err)
	}
	// After the pidfd is open: a shim that holds the lock is alive, so that no other process has its PID.
	lives, err := isLocked(dir)
	if err == nil && lives {
		return newHandle(dir, pid, fd), nil
	}
	unix.Close(fd)
	if err == nil {
		err = errors.New("it has just ended")
	}
	return nil, err
}

// SearchShim finds the shim of a container by its arguments in the list of all processes. Unlike FindShim, it finds a shim
// that hangs before it has recorded its process ID. Without such a shim, it returns an error.
func SearchShim(dir string) (*Handle, error) {
	lives, err := isLocked(dir)
	if err == nil && !lives {
		err = errors.New("none lives")
	}
	if err != nil {
		return nil, fmt.Errorf("search shim of %s: %w", dir, err)
	}
	all, err := procfs.ListProcesses()
	if err != nil {
		return nil, fmt.Errorf("search shim of %s: %w", dir, err)
	}
	for _, p := range all {
		if p.Zombie || !procfs.HasArgs(p.PID, Name, dir) {
			continue
		}
		handle, err := openHandle(dir, p.PID)
		// The arguments are read again: the pidfd now guarantees whose they are.
		if err == nil && procfs.HasArgs(p.PID, Name, dir) {
			return handle, nil
		}
		if err == nil {
			handle.Close()
		}
	}
	return nil, fmt.Errorf("search shim of %s: it lives, but no process has its name", dir)
}

// isLocked reports whether a shim has locked the lock file in the directory dir. If so, the shim is running.
func isLocked(dir string) (bool, error) {
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
