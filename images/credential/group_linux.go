// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package credential

import (
	"errors"
	"os"
	"os/exec"
	"sync"

	"golang.org/x/sys/unix"
)

// runGroup runs a command in a process group of its own, and kills the group when the command has ended or its context
// has.
func runGroup(cmd *exec.Cmd) error {
	var mu sync.Mutex // guards ended
	ended := false    // the group has been killed, and its number may belong to another
	kill := func() error {
		mu.Lock()
		defer mu.Unlock()
		if ended {
			return os.ErrProcessDone
		}
		return unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
	}
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	cmd.Cancel = kill
	if err := cmd.Start(); err != nil {
		return err
	}
	if awaitExit(cmd.Process.Pid) == nil {
		_ = kill()
		mu.Lock()
		ended = true
		mu.Unlock()
	}
	return cmd.Wait()
}

// awaitExit waits for the end of a child and leaves it a zombie: for so long its number is that of its group, and of
// nothing else.
func awaitExit(pid int) error {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
