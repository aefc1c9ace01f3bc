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

// Name is the argv[0] that makes the program a shim. Nothing inherits it, and nobody types it by accident.
const Name = "nodeagent-shim"

// What a shim inherits from the agent: descriptors after stdin, stdout and stderr.
const (
	readyFD = 3 // a pipe: one started value, then its end; the lock follows it
)

// started is what a shim reports once.
type started struct {
	Run   Run
	Error string
}

// marker is in the environment of a shim, and of nothing else: a program that has changed its arguments is known by it.
const marker = "NODEAGENT_SHIM"

// Marked reports whether this program was started as a shim, whatever its arguments are now.
func Marked() bool { return os.Getenv(marker) != "" }

// environment returns that of a shim; the container's is in its spec. It keeps the Go runtime small, and where the
// program was built with the race detector, that from waiting a second at the end.
func environment() []string {
	return []string{"GOMAXPROCS=1", "GOGC=10", "GORACE=atexit_sleep_ms=0", marker + "=1"}
}

// Start starts a shim for a directory, and returns when the process in it runs. When ctx ends before, the shim is
// killed and what it started with it.
func Start(ctx context.Context, dir string) (*Handle, Run, error) {
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
	h, err := spawn(dir, report, lock)
	report.Close()
	if err != nil {
		return nil, Run{}, err
	}
	stop := context.AfterFunc(ctx, func() { ready.SetReadDeadline(time.Now()) })
	defer stop()
	run, err := h.await(ready)
	if err == nil {
		return h, run, nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	// The lock must be free, and the shim reaped, before another attempt or the removal of the directory.
	return nil, Run{}, errors.Join(err, h.End())
}

// spawn executes the program anew as a shim.
func spawn(dir string, report, lock *os.File) (*Handle, error) {
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
		Env:   environment(),
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

// await reads what a new shim reports.
func (h *Handle) await(ready io.Reader) (Run, error) {
	data, err := io.ReadAll(ready)
	if err != nil {
		return Run{}, fmt.Errorf("wait for shim: %w", err)
	}
	var s started
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
