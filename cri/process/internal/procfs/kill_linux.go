// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Kill sends SIGKILL to exactly this process: never to another one that got its PID. One that has ended is
// success.
func Kill(p Process) error {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return os.NewSyscallError("pidfd_open", err)
	}
	defer unix.Close(fd)
	// The descriptor now holds on to one process; only after that can the check be trusted.
	now, err := Read(p.PID)
	if errors.Is(err, os.ErrNotExist) || err == nil && now.Start != p.Start {
		return nil
	}
	if err != nil {
		return err
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return os.NewSyscallError("pidfd_send_signal", err)
	}
	return nil
}
