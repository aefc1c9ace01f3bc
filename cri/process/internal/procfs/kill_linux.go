// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Kill sends SIGKILL to a process. If the process has exited, Kill returns nil. A new process with the same PID never gets
// the signal.
func Kill(process Process) error {
	fd, err := unix.PidfdOpen(process.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return os.NewSyscallError("pidfd_open", err)
	}
	defer unix.Close(fd)
	// The pidfd now identifies one process; its identity can be checked only after opening it.
	now, err := ReadProcess(process.PID)
	if errors.Is(err, os.ErrNotExist) || err == nil && now.Start != process.Start {
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
