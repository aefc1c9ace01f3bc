// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"errors"
	"os"
	"os/exec"
	"sync"

	"golang.org/x/sys/unix"
)

// runGroup runs a command in a process group of its own, and kills the group when the context of the command ends before
// it. What a plugin that has ended leaves running on purpose, such as a DNS server, is left alone.
func runGroup(cmd *exec.Cmd) error {
	var mu sync.Mutex // guards ended
	ended := false    // the number of the group may belong to another
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		mu.Lock()
		defer mu.Unlock()
		if ended {
			return os.ErrProcessDone
		}
		return unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	if awaitExit(cmd.Process.Pid) == nil {
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
