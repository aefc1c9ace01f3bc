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

// Run runs a command in a process group of its own, and kills the group when the context of the command ends before it. What
// a command that has ended leaves running in its group is killed, too, unless it may stay, as the server of a plugin.
func Run(cmd *exec.Cmd, stay bool) error {
	var mu sync.Mutex // guards ended
	ended := false    // the number of the group may belong to another
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
