// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/cri/process/internal/procfs"
)

// killWait limits the wait for the exit of a shim after SIGKILL.
const killWait = 5 * time.Second

// Handle is the agent's handle of a shim. It holds a pidfd, which identifies the process even if its PID is reused. All methods
// may be called concurrently.
type Handle struct {
	dir string
	pid int

	mu    sync.RWMutex // held for reading while pidfd is used
	pidfd int          // -1 when closed
}

func newHandle(dir string, pid, pidfd int) *Handle {
	return &Handle{dir: dir, pid: pid, pidfd: pidfd}
}

// PID returns the process ID of the shim. After Exited has returned true, another process may have this ID.
func (h *Handle) PID() int { return h.pid }

// Exited reports whether the shim has exited, so that [ReadOutcome] can be called. It returns true for a closed handle.
func (h *Handle) Exited() bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.pidfd < 0 || isReadable(uintptr(h.pidfd))
}

// isReadable reports whether a descriptor is readable. A pidfd becomes readable when its process exits.
func isReadable(fd uintptr) bool {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		if !errors.Is(err, unix.EINTR) {
			return err == nil && n > 0
		}
	}
}

// Wait waits until the shim has exited. If ctx ends first, it returns the cause of ctx.
func (h *Handle) Wait(ctx context.Context) error {
	file, err := h.pollableFile()
	if isResourceShortage(err) {
		return h.pollExited(ctx)
	}
	if file == nil || err != nil {
		return err
	}
	defer file.Close()
	stop := context.AfterFunc(ctx, func() { _ = file.SetReadDeadline(time.Now()) })
	defer stop()
	conn, err := file.SyscallConn()
	if err != nil {
		return err
	}
	err = conn.Read(isReadable)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// pollPeriod is the polling period of Wait when no file descriptor is free.
const pollPeriod = 20 * time.Millisecond

// pollExited waits like Wait, but polls Exited, which needs no free file descriptor.
func (h *Handle) pollExited(ctx context.Context) error {
	ticker := time.NewTicker(pollPeriod)
	defer ticker.Stop()
	for !h.Exited() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
	return nil
}

// isResourceShortage reports whether err means that descriptors or memory are exhausted, which may be temporary.
func isResourceShortage(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.ENOBUFS)
}

// pollableFile returns a duplicate of the pidfd that the Go runtime polls, or nil if the handle is closed.
func (h *Handle) pollableFile() (*os.File, error) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.pidfd < 0 {
		return nil, nil
	}
	fd, err := unix.FcntlInt(uintptr(h.pidfd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	// a waiting goroutine blocks no thread, and can have its own deadline
	return os.NewFile(uintptr(fd), "pidfd"), nil
}

// KillShim sends SIGKILL to the shim. The kernel then kills the container's process too. KillShim does not wait until they have
// exited.
func (h *Handle) KillShim() error {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.pidfd < 0 {
		return nil
	}
	if err := unix.PidfdSendSignal(h.pidfd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return os.NewSyscallError("pidfd_send_signal", err)
	}
	return nil
}

// KillAndClose kills the shim, waits until it has exited and closes the handle.
func (h *Handle) KillAndClose() error {
	defer h.Close()
	err := h.KillShim()
	for deadline := time.Now().Add(killWait); err == nil && !h.Exited(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			err = errors.New("shim survives SIGKILL")
		}
	}
	return err
}

// Close closes the handle. A running shim continues to run. If the shim has exited and is a child of this process, Close reaps
// it.
func (h *Handle) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.pidfd < 0 {
		return
	}
	_ = unix.Waitid(unix.P_PIDFD, h.pidfd, nil, unix.WEXITED|unix.WNOHANG, nil)
	unix.Close(h.pidfd)
	h.pidfd = -1
}

// ReadOutcome returns the exit record of the container with directory dir. The shim of the container must have exited. If a
// killed shim has left no record, ReadOutcome writes one. Before that it kills all processes that have the entry mark in
// their environment: only processes of the container have it.
//
// If the process was never started, the error wraps [os.ErrNotExist]. After an error for which [IsReadFailure] returns true,
// ReadOutcome may be called again.
func ReadOutcome(dir, mark string) (Exit, error) {
	exit, err := ReadRecord[Exit](filepath.Join(dir, exitFile))
	if err == nil || IsReadFailure(err) {
		return exit, err
	}
	run, err := ReadRun(dir)
	if err != nil {
		return Exit{}, err
	}
	exit = Exit{Code: codeLost, Reason: ReasonUnknown, Started: run.At, At: time.Now()}
	boot, err := procfs.BootID()
	if err != nil {
		return Exit{}, err
	}
	if run.Boot == boot {
		exit.Message = "its shim was killed, and the container with it"
		killLeftovers(run, mark)
		if spec, err := ReadSpec(dir); err == nil {
			_ = killAndRemoveCgroups(spec.Cgroups, outcomeTimeout) // removal of the container reports remaining cgroups
		}
	} else {
		exit.Message = "the machine was rebooted"
	}
	return exit, writeExit(dir, exit)
}

// killLeftovers kills the processes that a killed shim has left: the process of the container, and all processes that have the
// entry mark in their environment.
func killLeftovers(run Run, mark string) {
	// The kernel kills the process with its shim, unless the process has changed its credentials.
	_ = procfs.Kill(procfs.Process{PID: run.PID, Start: run.Start})
	clean := 0
	for deadline := time.Now().Add(killWait); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		all, err := procfs.ListProcesses()
		if err != nil {
			return
		}
		clean++
		for _, p := range all {
			if !p.Zombie && p.Start >= run.Start && procfs.HasEnv(p.PID, mark) {
				clean = 0
				_ = procfs.Kill(p)
			}
		}
		// One scan may miss a process that forks or executes a program.
		if clean == 2 {
			return
		}
	}
}
