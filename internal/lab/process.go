// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// pollInterval is the time between two checks of another process.
const pollInterval = 20 * time.Millisecond

// process identifies a process of any parent. Its start time distinguishes it from a later process with the same ID.
type process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks since boot
}

// startProcess starts a program in its own session, so that it outlives this process, and appends its output to a log.
func startProcess(logPath, dir, path string, args ...string) (process, error) {
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return process{}, err
	}
	defer log.Close()
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, dir
	// CNI plugins are found by configuration, but iptables and mount helpers by PATH, which may lack sbin.
	cmd.Env = []string{"PATH=" + filepath.Dir(path) + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.SysProcAttr = newSession()
	if err := cmd.Start(); err != nil {
		return process{}, err
	}
	pid := cmd.Process.Pid
	start, ok := processStart(pid)
	if err := cmd.Process.Release(); err != nil {
		return process{}, err
	}
	if !ok {
		return process{}, fmt.Errorf("start %s: it ended at once, see %s", path, logPath)
	}
	return process{PID: pid, Start: start}, nil
}

// isAlive reports whether the process runs. It returns false for a zombie.
func (p process) isAlive() bool {
	if p.PID == 0 {
		return false
	}
	start, ok := processStart(p.PID)
	return ok && start == p.Start
}

// killProcess sends SIGKILL to the process and waits until it has exited.
func (p process) killProcess(ctx context.Context) error {
	return p.signalAndWait(ctx, syscall.SIGKILL)
}

// stopProcess sends SIGTERM to the process, and SIGKILL after the grace period, and waits until it has exited.
func (p process) stopProcess(ctx context.Context, grace time.Duration) error {
	asked, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if err := p.signalAndWait(asked, syscall.SIGTERM); err == nil || ctx.Err() != nil {
		return err
	}
	return p.signalAndWait(ctx, syscall.SIGKILL)
}

func stopAll(ctx context.Context, all []process, grace time.Duration) error {
	var errs []error
	for _, p := range all {
		errs = append(errs, p.stopProcess(ctx, grace))
	}
	return errors.Join(errs...)
}

// signalAndWait sends sig to the process and waits until it has exited or ctx ends.
func (p process) signalAndWait(ctx context.Context, sig syscall.Signal) error {
	if !p.isAlive() {
		return nil
	}
	running, err := os.FindProcess(p.PID)
	if err != nil {
		return err
	}
	if err := running.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal process %d: %w", p.PID, err)
	}
	for p.isAlive() {
		if err := sleepFor(ctx, pollInterval); err != nil {
			return fmt.Errorf("wait for the end of process %d after %v: %w", p.PID, sig, err)
		}
	}
	reapProcess(p.PID)
	return nil
}

// sleepFor waits for the duration d. If ctx ends first, it returns the error of ctx.
func sleepFor(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// acquireLock waits until the file at path is locked, shared or exclusive. Closing the returned file releases the lock.
func acquireLock(ctx context.Context, path string, shared bool) (*os.File, error) {
	for {
		f, err := tryAcquireLock(path, shared)
		if err == nil || !errors.Is(err, errLocked) {
			return f, err
		}
		if err := sleepFor(ctx, pollInterval); err != nil {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
	}
}

// errLocked reports that another process holds the lock.
var errLocked = errors.New("locked by another process")

func tryAcquireLock(path string, shared bool) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := tryLock(f, shared); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
