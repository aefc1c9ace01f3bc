// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plugincmd

import (
	"errors"
	"os"
	"os/exec"
	"sync"

	"golang.org/x/sys/unix"
)

// Run runs a command in a process group of its own, and kills the group if the context of the command ends first. After the
// command has exited, it also kills the remaining processes of the group, unless stay is set, for plugins that leave a server
// running.
func Run(cmd *exec.Cmd, stay bool) error {
	var mu sync.Mutex // guards ended
	ended := false    // the process group ID may be reused
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
		if !stay {
			_ = kill()
		}
		mu.Lock()
		ended = true
		mu.Unlock()
	}
	return cmd.Wait()
}

// awaitExit waits until a child exits and leaves it a zombie. Until it is reaped, the kernel does not reuse its process group ID.
func awaitExit(pid int) error {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
