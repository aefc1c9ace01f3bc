// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Name is the argv[0] that makes the program run as a shim.
const Name = "nodeagent-shim"

// Descriptors that a shim inherits after stdin, stdout and stderr.
const (
	readyFD = 3 // pipe for one startReport; the lock follows as descriptor 4
)

// startReport is the report that a shim sends once when its process has started or failed to start.
type startReport struct {
	Run   Run
	Error string
}

// shimEnv is an environment variable of shims only. It identifies a shim even if the program has changed its arguments.
const shimEnv = "NODEAGENT_SHIM"

// IsShimProcess reports whether this program was started as a shim, even if it has changed its arguments.
func IsShimProcess() bool { return os.Getenv(shimEnv) != "" }

// shimEnviron returns the environment of a shim, which limits the memory of the Go runtime.
func shimEnviron() []string {
	// the race detector delays the exit of a program by one second by default
	return []string{"GOMAXPROCS=1", "GOGC=10", "GORACE=atexit_sleep_ms=0", shimEnv + "=1"}
}

// StartShim starts the shim of the container with directory dir, and returns when the container's process runs. The returned
// Run is the start record of the process. If ctx ends first, StartShim kills the shim and the process.
func StartShim(ctx context.Context, dir string) (*Handle, Run, error) {
	lock, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, Run{}, err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, Run{}, fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	ready, report, err := os.Pipe()
	if err != nil {
		return nil, Run{}, err
	}
	defer ready.Close()
	h, err := startProcess(dir, report, lock)
	report.Close()
	if err != nil {
		return nil, Run{}, err
	}
	stop := context.AfterFunc(ctx, func() { ready.SetReadDeadline(time.Now()) })
	defer stop()
	run, err := h.awaitStarted(ready)
	if err == nil {
		return h, run, nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	// The lock must be free, and the shim reaped, before another start or the removal of the directory.
	return nil, Run{}, errors.Join(err, h.KillAndClose())
}

// startProcess starts this program again as the shim of a container, with a pipe for its start report and the locked file.
func startProcess(dir string, report, lock *os.File) (*Handle, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	output, err := os.OpenFile(filepath.Join(dir, logFile), os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	defer output.Close()
	fd := -1
	process, err := os.StartProcess("/proc/self/exe", []string{Name, dir}, &os.ProcAttr{
		Dir:   "/",
		Env:   shimEnviron(),
		Files: []*os.File{null, output, output, report, lock},
		Sys:   &syscall.SysProcAttr{Setsid: true, PidFD: &fd},
	})
	if err != nil {
		return nil, err
	}
	if fd < 0 {
		process.Kill()
		process.Wait()
		return nil, fmt.Errorf("start shim: the kernel has no pidfd: %w", errors.ErrUnsupported)
	}
	h := newHandle(dir, process.Pid, fd)
	return h, process.Release()
}

// awaitStarted reads the start report of a new shim from the pipe ready. It returns the start record, or the error of the start.
func (h *Handle) awaitStarted(ready io.Reader) (Run, error) {
	data, err := io.ReadAll(ready)
	if err != nil {
		return Run{}, fmt.Errorf("wait for shim: %w", err)
	}
	var s startReport
	if err := json.Unmarshal(data, &s); err != nil {
		output, _ := readRegular(filepath.Join(h.dir, logFile))
		return Run{}, fmt.Errorf("shim ended without a report (call process.Main first in main, and in TestMain of tests): %.512s",
			strings.TrimSpace(string(output)))
	}
	if s.Error != "" {
		return Run{}, errors.New(s.Error)
	}
	return s.Run, nil
}
