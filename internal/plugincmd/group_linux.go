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

// Run runs cmd in a new process group and waits until it exits. If the context of cmd ends first, Run kills the group. After
// the exit it kills remaining child processes, unless stay is true, as for a plugin that starts a server.
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

// awaitExit waits until the child process pid exits, but does not reap it.
func awaitExit(pid int) error {
	for {
		// While the process is a zombie, the kernel does not reuse the ID of its process group.
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
