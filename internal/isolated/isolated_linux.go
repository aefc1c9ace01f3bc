// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package isolated

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// runIsolated executes this program with the same arguments in new namespaces, and returns its exit code. ok is false if
// the program did not start, for example because namespaces are forbidden.
func runIsolated(kinds Kind) (code int, ok bool) {
	runtime.LockOSThread() // the child is killed with the thread that started it
	defer runtime.UnlockOSThread()
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = os.Args
	cmd.Env = append(os.Environ(), Inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if kinds&Mounts != 0 {
		cmd.SysProcAttr.Unshareflags |= unix.CLONE_NEWNS
	}
	if kinds&Network != 0 {
		cmd.SysProcAttr.Unshareflags |= unix.CLONE_NEWNET
	}
	if err := cmd.Start(); err != nil {
		return 0, false // the tests report what they lack
	}
	err := cmd.Wait()
	if ended, is := errors.AsType[*exec.ExitError](err); is {
		return max(1, ended.ExitCode()), true
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "namespaces for the tests:", err)
		return 1, true
	}
	return 0, true
}
