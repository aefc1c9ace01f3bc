// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package pty opens pseudo-terminals. The caller owns the returned descriptors.
package pty

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Open opens a pseudo-terminal and returns the descriptors of both sides. Reads of the master are non-blocking. The slave
// belongs to the user with ID uid, or of this process if uid is negative. It does not become the controlling terminal.
func Open(uid int) (master, slave int, err error) {
	master, err = unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, -1, &os.PathError{Op: "open", Path: "/dev/ptmx", Err: err}
	}
	slave, err = openSlave(master, uid)
	if err != nil {
		_ = unix.Close(master)
		return -1, -1, err
	}
	return master, slave, nil
}

func openSlave(master, uid int) (int, error) {
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return -1, fmt.Errorf("unlock terminal: %w", err)
	}
	n, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err != nil {
		return -1, fmt.Errorf("name terminal: %w", err)
	}
	path := fmt.Sprint("/dev/pts/", n)
	slave, err := unix.Open(path, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: path, Err: err}
	}
	if uid >= 0 {
		if err := unix.Fchown(slave, uid, -1); err != nil {
			_ = unix.Close(slave)
			return -1, &os.PathError{Op: "chown", Path: path, Err: err}
		}
	}
	return slave, nil
}

// Resize sets the size of the terminal with this master, in characters. Programs on the terminal receive SIGWINCH.
func Resize(master *os.File, width, height uint16) error {
	conn, err := master.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = conn.Control(func(fd uintptr) {
		failed = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: height, Col: width})
	})
	if err == nil {
		err = failed
	}
	return err
}
