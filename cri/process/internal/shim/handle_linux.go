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

// endTime bounds the wait for a shim to end after SIGKILL.
const endTime = 5 * time.Second

// Handle is the agent's hold on a shim: a pidfd, which stays that of this shim whatever happens to the pid. Its
// methods may be called from many goroutines.
type Handle struct {
	dir string
	pid int

	mu    sync.RWMutex // held for reading while pidfd is used
	pidfd int          // -1 when closed
}

func newHandle(dir string, pid, pidfd int) *Handle {
	return &Handle{dir: dir, pid: pid, pidfd: pidfd}
}

// PID returns the process ID of the shim, valid until Exited is true.
func (h *Handle) PID() int { return h.pid }

// Exited reports whether the shim has ended, and so whether [Outcome] knows how the process ended. A closed handle is
// that of a shim that has ended.
func (h *Handle) Exited() bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.pidfd < 0 || readable(uintptr(h.pidfd))
}

// readable reports whether a descriptor has something to read; a pidfd has when its process ended.
func readable(fd uintptr) bool {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		if !errors.Is(err, unix.EINTR) {
			return err == nil && n > 0
		}
	}
}

// Wait returns when the shim has ended, or with the cause of ctx.
func (h *Handle) Wait(ctx context.Context) error {
	file, err := h.pollable()
	if scarce(err) {
		return h.poll(ctx)
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
	err = conn.Read(readable)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// pollPeriod is how often a shim is looked at while there is no descriptor to wait on.
const pollPeriod = 20 * time.Millisecond

// poll is Wait without a descriptor of its own.
func (h *Handle) poll(ctx context.Context) error {
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

// scarce reports whether an error says that this process or the machine is short of something, which it may have again
// soon.
func scarce(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.ENOBUFS)
}

// pollable returns the pidfd as a file of its own that the Go scheduler polls: no thread waits, and each waiter
// has its own deadline. It is nil when the handle is closed.
func (h *Handle) pollable() (*os.File, error) {
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
	return os.NewFile(uintptr(fd), "pidfd"), nil
}

// KillShim sends SIGKILL to the shim, and so to its process. It does not wait for their end.
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

// End kills the shim, waits for its end and closes the handle.
func (h *Handle) End() error {
	defer h.Close()
	err := h.KillShim()
	for deadline := time.Now().Add(endTime); err == nil && !h.Exited(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			err = errors.New("shim survives SIGKILL")
		}
	}
	return err
}

// Close reaps the shim if it has ended and is a child of this process, and gives the descriptor back. A living
// shim lives on.
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

// Outcome returns how the process of a directory ended; its shim must be gone. When the shim ended without a
// record, Outcome kills what it left and makes one; mark is an entry of the environment that no other container has.
// The error wraps [os.ErrNotExist] when the process never started. After one that [IsTrouble] knows it may be asked again.
func Outcome(dir, mark string) (Exit, error) {
	exit, err := Read[Exit](filepath.Join(dir, exitFile))
	if err == nil || IsTrouble(err) {
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
			_ = endCgroups(spec.Cgroups, outcomeTime) // what is left is told when the container is removed
		}
	} else {
		exit.Message = "the machine was started anew"
	}
	return exit, writeExit(dir, exit)
}

// killLeftovers kills what a killed shim left: its process, which the kernel has killed already unless it changed its
// credentials, and everything that has the container's mark in its environment. A process that hides the mark
// escapes, unless a cgroup holds it. One round that finds nothing is not enough: a process may be in the middle of
// exec, or may have forked and ended while the list was read.
func killLeftovers(run Run, mark string) {
	_ = procfs.Kill(procfs.Process{PID: run.PID, Start: run.Start})
	clean := 0
	for deadline := time.Now().Add(endTime); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		all, err := procfs.All()
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
		if clean == 2 {
			return
		}
	}
}
